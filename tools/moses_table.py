#!/usr/bin/env python3
"""Prints src/text/legacy/moses.h, the classes of characters that XLM's word splitter goes by.

    tools/moses_table.py > src/text/legacy/moses.h      (needs sacremoses from PyPI)

They are the properties of an old Perl with gaps of their own, so every character is put to the reference itself: is it
part of a word, does a comma before it stay, is an apostrophe before it a contraction, does a period before it stay.
"""
from sacremoses import MosesTokenizer

ALPHA, NUMBER, LOWER = 1, 2, 4


def main():
    moses = MosesTokenizer("en")
    ranges = []
    for point in range(33, 0x110000):
        c = chr(point)
        if 0xD800 <= point <= 0xDFFF or c.isspace() or c in ".'`,-":
            continue

        def split(text):
            return moses.tokenize(text, escape=False)

        flags = 0
        if len(split("a" + c + "b")) == 1:
            flags |= ALPHA if split("a'" + c)[1:] == ["'" + c] else 0
            flags |= NUMBER if split("1," + c) == ["1," + c] else 0
        if split("Zq. " + c)[0] == "Zq.":
            flags |= LOWER
        if not flags:
            continue
        if ranges and ranges[-1][1] == point - 1 and ranges[-1][2] == flags:
            ranges[-1][1] = point
        else:
            ranges.append([point, point, flags])
    print("/* moses.h - made by tools/moses_table.py: do not edit. First, last; 1: letter, 2: number, 4: small. */")
    print("/* clang-format off */")
    row = ""
    for item in ("{0x%x, 0x%x, %d}," % tuple(r) for r in ranges):
        if len(row) + len(item) > 108:
            print(row)
            row = ""
        row += (" " if row else "") + item
    print(row)
    print("/* clang-format on */")


main()
