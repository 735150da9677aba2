#!/usr/bin/env python3
"""Writes src/text/regex_sets.def: the character properties that regular expressions of tokenizer.json name, as the reference library
has them (Oniguruma inside `tokenizers`, which brings its own version of Unicode).

    tools/regex_table.py > src/text/regex_sets.def

Needs `tokenizers` from PyPI, and perl for the names of the scripts.
"""
import subprocess

from tokenizers import Regex, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))
CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
BINARY = ["Alphabetic", "Uppercase", "Lowercase", "Emoji", "Emoji_Presentation", "Extended_Pictographic", "Ideographic"]
NEWER = "Kawi:Kawi Nag_Mundari:Nagm Garay:Gara Gurung_Khema:Gukh Kirat_Rai:Krai Ol_Onal:Onao Sunuwar:Sunu Todhri:Todr Tulu_Tigalari:Tutg"
PERL = 'use Unicode::UCD qw(prop_values prop_value_aliases); for (prop_values("Script")) { my ($s, $l) = prop_value_aliases("Script", $_); print "$l:$s "; }'


def members(name):
    """The characters that have the property."""
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed", invert=True)
    return [POINTS[i] for _, (a, b) in split.pre_tokenize_str(TEXT) for i in range(a, b)]


def starts(owner):
    """(first, value) of each stretch of characters with one value; surrogates go with their neighbours."""
    out, last = [], None
    for c in POINTS:
        if owner[c] != last:
            last = owner[c]
            out.append((c, last))
    return out


def rows(values, per):
    return "\n".join("    " + " ".join("%s," % v for v in values[i:i + per]) for i in range(0, len(values), per))


def toggles(points):
    out, inside = [], set(points)
    for c in POINTS:
        if (c in inside) != (len(out) % 2 == 1):
            out.append(c)
    return out


owner = dict.fromkeys(POINTS, 0)
for i, name in enumerate(CATEGORIES):
    if name not in ("Cn", "Cs"):
        for c in members(name):
            owner[c] = i
scripts = sorted({tuple(x.split(":")) for x in subprocess.run(["perl", "-e", PERL], capture_output=True, text=True, check=True).stdout.split()} |
                 {tuple(x.split(":")) for x in NEWER.split()})
known, script_of = [], dict.fromkeys(POINTS, 0)
for long, short in scripts:
    if long == "Unknown":
        continue
    try:
        found = members(long)
    except Exception:  # a name that this Oniguruma does not know
        continue
    known.append((long, short))
    for c in found:
        script_of[c] = len(known)

print("/* regex_sets.def - character properties as the reference's regular expressions have them. Made by")
print(" * tools/regex_table.py; do not edit. A number is a first character with its value in the upper eight bits. */")
print("/* clang-format off */")
print("static const char *const category_names[] = {")
print(rows(['"%s"' % c for c in CATEGORIES], 15))
print("};\nstatic const uint32_t categories[] = {")
print(rows(["0x%x" % (c | v << 24) for c, v in starts(owner)], 14))
print("};\n/* Number 0 is no script. */\nstatic const char *const script_names[][2] = {\n    {\"\", \"\"},")
print(rows(['{"%s", "%s"}' % n for n in known], 5))
print("};\nstatic const uint32_t scripts[] = {")
print(rows(["0x%x" % (c | v << 24) for c, v in starts(script_of)], 14))
print("};\n/* Where a property begins, ends, begins again. */")
for name in BINARY:
    print("static const uint32_t binary_%s[] = {" % name.lower())
    print(rows(["0x%x" % c for c in toggles(members(name))], 16))
    print("};")
print("static const struct { const char *name; const uint32_t *at; size_t count; } binaries[] = {")
for name in BINARY:
    low = name.lower()
    print('    {"%s", binary_%s, sizeof(binary_%s) / sizeof(uint32_t)},' % (name, low, low))
print("};\n/* clang-format on */")
