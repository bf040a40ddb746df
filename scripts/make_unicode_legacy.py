#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/unicode_legacy.c: the sets of code points and the lower-case letters that normalizers go by.

    pip install tokenizers; python3 scripts/make_unicode_legacy.py > src/text/unicode_legacy.c

Measured like src/text/unicode_table.c: every code point is put through the `tokenizers` library. Its steps carry tables of several
ages: normal forms are Unicode 9's, marks and punctuation older or newer, lower case is Rust's. What Unicode 9 had assigned comes from
perl (Present_In), and is checked against the library here. Development only: the build reads the result.
"""
import subprocess
import sys
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def dropped(normalizer):
    """Code points that the normalizer takes out of "x?y"."""
    return [c for c in POINTS if normalizer.normalize_str("x" + chr(c) + "y") == "xy"]


def ranges(points):
    """Ranges of a set; what is no character at all (surrogates) may lie inside one."""
    out = []
    for c in points:
        if out and (c == out[-1][1] + 1 or out[-1][1] == 0xD7FF and c == 0xE000):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def young():
    code = r'for my $c (0..0x10FFFF) { next if $c >= 0xD800 && $c < 0xE000; print "$c\n" unless chr($c) =~ /\p{Present_In: 9.0}/ }'
    return [int(x) for x in subprocess.run(["perl", "-e", "no warnings; " + code], check=True, capture_output=True).stdout.split()]


def check(new):
    """Where the library's normal forms and those of a newer Unicode differ, a code point that Unicode 9 did not have is the reason."""
    new = set(new)
    for name in ("NFC", "NFD", "NFKC", "NFKD"):
        form = getattr(normalizers, name)()
        for c in POINTS:
            for s in ("a" + chr(c) + "\u0334", "a\u0300" + chr(c)):
                if form.normalize_str(s) != unicodedata.normalize(name, s) and c not in new:
                    sys.exit("%s of U+%04X differs and Unicode %s is not why" % (name, c, unicodedata.unidata_version))
                if c in new and form.normalize_str(s) != unicodedata.normalize(name, s[:s.index(chr(c))]) + chr(c) + s[s.index(chr(c)) + 1:]:
                    sys.exit("%s changes U+%04X, which Unicode 9 did not have" % (name, c))


def lower_rows():
    """[first, last, step, difference]: the lower-case letter of first, first + step, ... is that much more."""
    rows, special = [], []
    lower = normalizers.Lowercase()
    for c in POINTS:
        low = lower.normalize_str(chr(c))
        if low == chr(c):
            continue
        if len(low) > 1:
            special.append((c, low))
            continue
        diff = ord(low) - c
        if rows and rows[-1][3] == diff and rows[-1][1] != rows[-1][0] and c - rows[-1][1] == rows[-1][2]:
            rows[-1][1] = c
        elif rows and rows[-1][3] == diff and rows[-1][1] == rows[-1][0] and c - rows[-1][1] in (1, 2):
            rows[-1][2] = c - rows[-1][1]
            rows[-1][1] = c
        else:
            rows.append([c, c, 1, diff])
    assert special == [(0x130, "i\u0307")], special
    return rows


def main():
    new = young()
    check(new)
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    punct = pre_tokenizers.Punctuation()
    sets = {
        "young": new,
        "control": dropped(normalizers.BertNormalizer(**dict(bert, clean_text=True))),
        "nonspacing": dropped(normalizers.BertNormalizer(**dict(bert, strip_accents=True))),
        "mark": dropped(normalizers.StripAccents()),
        "punctuation": [c for c in POINTS if len(punct.pre_tokenize_str("x" + chr(c))) == 2],
    }
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* unicode_legacy.c: made by scripts/make_unicode_legacy.py from tokenizers %s; do not edit. */" % tokenizers.__version__,
           '#include "text/unicode_legacy.h"', "", "/* clang-format off */"]

    def numbers(head, rows):
        line = ""
        out.append(head + " = {")
        for r in rows:
            x = "{" + ",".join("%d" % v for v in r) + "}"
            if len(line) + len(x) + 1 > 120:
                out.append(line)
                line = ""
            line += x + ","
        out.append(line)
        out.append("};")

    for name, points in sets.items():
        rows = ranges(points)
        numbers("static const struct range %s[]" % name, rows)
        print("%s: %d code points in %d ranges" % (name, len(points), len(rows)), file=sys.stderr)
    rows = lower_rows()
    numbers("const struct lower_run unicode_lower[]", rows)
    out.append("const int unicode_n_lower = %d;" % len(rows))
    out.append("const struct unicode_set unicode_legacy[N_LEGACY] = {")
    for name in sets:
        out.append("    [LEGACY_%s] = {%s, sizeof %s / sizeof *%s}," % (name.upper(), name, name, name))
    out.append("};")
    print("\n".join(out))


main()
