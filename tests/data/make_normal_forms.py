#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of tests/data/test_normal_form.c: digests (XXH64) of what the `tokenizers` library makes of every code point and of
mixtures.

    pip install tokenizers xxhash; python3 tests/data/make_normal_forms.py
"""
import xxhash
from tokenizers import normalizers

# As in test_normal_form.c.
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x591, 0x5C7), (0x610, 0x6DC), (0x8D0, 0x8FF), (0x93C, 0x9D7), (0xB3C, 0xBD7),
          (0xC4D, 0xD57), (0xF71, 0xFB9), (0x1026, 0x1037), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2100, 0x218F),
          (0x2460, 0x24FF), (0x3040, 0x30FF), (0x3131, 0x318E), (0xAC00, 0xAC40), (0xF900, 0xFB4F), (0xFE20, 0xFE2F), (0xFF01, 0xFFEE),
          (0x11099, 0x110BA), (0x1D15E, 0x1D172), (0x1F100, 0x1F251), (0x32FF, 0x32FF), (0x11935, 0x11938), (0x1DC0, 0x1DFF)]


def mixtures():
    state = 17
    for _ in range(20000):
        text = ""
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        for _ in range(1 + (state >> 33) % 12):
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            lo, hi = RANGES[(state >> 33) % len(RANGES)]
            text += chr(lo + (state >> 40) % (hi - lo + 1))
        yield text


for name in ("NFC", "NFD", "NFKC", "NFKD"):
    form = getattr(normalizers, name)()
    points, mixed = xxhash.xxh64(), xxhash.xxh64()
    for c in range(1, 0x110000):
        if not 0xD800 <= c < 0xE000:
            points.update(form.normalize_str("a" + chr(c) + "\u0334").encode())
            points.update(form.normalize_str("\u0300" + chr(c)).encode())
    for text in mixtures():
        mixed.update(form.normalize_str(text).encode() + b"\n")
    print("    {NORMAL_%s, 0x%su, 0x%su}," % (name, points.hexdigest(), mixed.hexdigest()))
