#!/usr/bin/env python3
"""Writes unicode_class_data.c and unicode_norm_data.c into core/model (or the folder named).

Needs Python 3.11 (unicodedata 14.0) and the package unicodedata2 16.0.0. The reference tokenizer
takes letters and numbers from Unicode 16 but normalises by Unicode 9; AFTER_9 are the code points
with a combining class in 14 that 9 does not know (it treats them as class 0)."""
import os
import re
import sys
import unicodedata as v14
import unicodedata2 as v16

AFTER_9 = """07FD 0898-089F 08CA-08D3 09FE 0C3C 0D3B-0D3C 0EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 10D24-10D27
10EAB-10EAC 10F46-10F50 10F82-10F85 11070 1133B 1145E 11839-1183A 1193D-1193E 11943 119E0 11A34
11A47 11A99 11D42 11D44-11D45 11D97 16FF0-16FF1 1E130-1E136 1E2AE 1E2EC-1E2EF"""
NEW = set()
for part in re.split(r"\s+", AFTER_9):
    a, _, b = part.partition("-")
    NEW.update(range(int(a, 16), int(b or a, 16) + 1))
HEAD = '/* Written by tests/data/unicode/make_unicode_data.py. %s */\n#include "core/model/unicode_data.h"\n'


def ranges(key):
    out, start, value = [], None, None
    for c in range(0x110001):
        k = key(c) if c < 0x110000 else None
        if k != value:
            if value:
                out.append((start, c - 1, value))
            start, value = c, k
    return out


def table(f, kind, name, items):
    f.write("\nconst %s %s[] = {\n" % (kind, name))
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 98:
            f.write(line + "\n")
            line = "   "
        line += " " + item + ","
    f.write(line + "\n};\nconst size_t %s_count = %d;\n" % (name, len(items)))


here = os.path.dirname(os.path.abspath(__file__))
here = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../../core/model")
with open(os.path.join(here, "unicode_class_data.c"), "w") as f:
    f.write(HEAD % "Unicode 16: general categories L and N.")
    for letter, name in (("L", "unicode_letters"), ("N", "unicode_numbers")):
        r = ranges(lambda c: v16.category(chr(c))[0] == letter)
        table(f, "UnicodeRange", name, ["{%d,%d}" % x[:2] for x in r])

decompositions = []
for c in range(0x110000):
    d = v14.decomposition(chr(c))
    if d and not d.startswith("<") and c != 0x11938:
        parts = [int(x, 16) for x in d.split()]
        decompositions.append((c, parts[0], parts[1] if len(parts) == 2 else 0))
pairs = [(a, b, i) for i, (c, a, b) in enumerate(decompositions)
         if b and v14.normalize("NFC", chr(a) + chr(b)) == chr(c)]
with open(os.path.join(here, "unicode_norm_data.c"), "w") as f:
    f.write(HEAD % "Unicode 9: canonical mappings.")
    r = ranges(lambda c: 0 if c in NEW else v14.combining(chr(c)))
    table(f, "UnicodeCombining", "unicode_combining", ["{%d,%d,%d}" % x for x in r])
    table(f, "UnicodeDecomposition", "unicode_decompositions",
          ["{%d,%d,%d}" % x for x in decompositions])
    table(f, "uint16_t", "unicode_pairs", ["%d" % i for _, _, i in sorted(pairs)])
