#!/usr/bin/env python3
"""Prints src/text/scripts.h, the scripts of characters as the pre-tokenizer UnicodeScripts has them.

    tools/script_table.py /usr/share/unicode > src/text/scripts.h      (Debian: apt-get install unicode-data)

The reference has Unicode 9.0. A newer Scripts.txt is cut down to the characters of that age; of those, later versions
gave another script to the few in MOVED. Kana count as Han there, and so does the long vowel mark; a plain space has
no script, like what is unassigned.
"""
import sys

VERSION = (9, 0)
MOVED = {0x589: "Common", 0x61C: "Common", 0x953: "Devanagari", 0x954: "Devanagari", 0x30FC: "Han"}


def read(path):
    table = {}
    for line in open(path, encoding="utf-8"):
        fields = [f.strip() for f in line.split("#")[0].split(";")]
        if len(fields) < 2:
            continue
        first, _, last = fields[0].partition("..")
        for c in range(int(first, 16), int(last or first, 16) + 1):
            table[c] = fields[1]
    return table


def main():
    scripts, ages = read(sys.argv[1] + "/Scripts.txt"), read(sys.argv[1] + "/DerivedAge.txt")
    names, ranges = [], []
    for c in sorted(scripts):
        if tuple(map(int, ages[c].split("."))) > VERSION or c == 0x20:
            continue
        name = MOVED.get(c, scripts[c])
        name = "Han" if name in ("Hiragana", "Katakana") else name
        if name not in names:
            names.append(name)
        script = names.index(name) + 1
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == script:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, script])
    print("/* scripts.h - made by tools/script_table.py: do not edit. First, last, script. */")
    print("/* clang-format off */")
    row = ""
    for first, last, script in ranges:
        item = "{0x%x, 0x%x, %d}," % (first, last, script)
        if len(row) + len(item) > 108:
            print(row)
            row = ""
        row += (" " if row else "") + item
    print(row)
    print("/* clang-format on */")


main()
