#!/usr/bin/env python3
"""Writes src/text/graphemes.def: what each character does at the borders of graphemes, as the reference library has it.

    tools/grapheme_table.py TOKENIZER_JSON > src/text/graphemes.def

TOKENIZER_JSON: one with the character map of T5, whose entries show where the library `tokenizers` ends a grapheme: a mapped
character with one accent (five bytes) loses the accent, in a longer grapheme it keeps it. Only controls, Hangul and flags, which
no version of Unicode changes, come from the package `regex`. Needs both from PyPI.
"""
import base64
import json
import sys

import regex
from tokenizers import normalizers

path = sys.argv[1]
stage = json.load(open(path, encoding="utf-8"))["normalizer"]
for inner in stage.get("normalizers", []):
    if inner["type"] == "Precompiled":
        stage = inner
normal = normalizers.Precompiled(base64.b64decode(stage["precompiled_charsmap"])).normalize_str

ACCENTED = "e\u0301"        # has an entry
LETTER = "\u0958\u0301"     # an Indic consonant with an entry, and an accent
PICTURE = "\u2122\u0301"    # the same, a pictograph
FIXED = [(name, regex.compile(r"\p{GCB=%s}" % short)) for name, short in
         (("CONTROL", "Control"), ("HANGUL_L", "L"), ("HANGUL_V", "V"), ("HANGUL_T", "T"), ("HANGUL_LV", "LV"), ("HANGUL_LVT", "LVT"),
          ("FLAG", "Regional_Indicator"))]


def kept(text):
    return normal(text).endswith("\u0301")


def kind(c):
    if c in "\r\n\u200c\u200d":
        return {"\r": "CR", "\n": "LF", "\u200c": "NON_JOINER", "\u200d": "JOINER"}[c]
    if normal(ACCENTED + c) != normal(ACCENTED) + normal(c):
        if not kept("\u2122" + c + "\u200d" + PICTURE):
            return "SPACING"
        return "LINKER" if kept("\u0915" + c + LETTER) else "EXTEND"
    if normal(c + ACCENTED) != normal(c) + normal(ACCENTED):
        return "PREPEND"
    if kept(c + "\u094d" + LETTER):
        return "CONSONANT"
    if kept(c + "\u200d" + PICTURE):
        return "PICTURE"
    for name, pattern in FIXED:
        if pattern.match(c):
            return name
    return None


ranges = []
for point in range(1, 0x110000):
    if 0xD800 <= point <= 0xDFFF:
        continue
    found = kind(chr(point))
    if found is None:
        continue
    if ranges and ranges[-1][2] == found and ranges[-1][1] == point - 1:
        ranges[-1][1] = point
    else:
        ranges.append([point, point, found])

# Syllables of Hangul alternate: one LV, then 27 LVT. They are left to arithmetic.
ranges = [r for r in ranges if r[2] not in ("HANGUL_LV", "HANGUL_LVT")]
print("/* graphemes.def - made by tools/grapheme_table.py: do not edit. First, last, kind. */\n/* clang-format off */")
line = ""
for first, last, found in ranges:
    item = f"{{0x{first:x}, 0x{last:x}, {found}}},"
    if len(line) + len(item) + 1 > 110:
        print(line)
        line = ""
    line += (" " if line else "") + item
print(line)
print("    /* clang-format on */")
