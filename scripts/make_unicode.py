#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/unicode_table.c: what kind of character each code point is, for the classes of tokenizers.

    pip install tokenizers; python3 scripts/make_unicode.py > src/text/unicode_table.c

The tables are measured, not copied: every code point is put through the `tokenizers` library, which has its own Oniguruma
and Rust's own tables, so that what tutti calls a letter is what that library calls a letter, whatever Unicode version the
libraries of this machine know. Development only: the build reads the result.
"""
import sys

import tokenizers
from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Braille Canadian_Aboriginal Cherokee Coptic Cyrillic Devanagari Ethiopic "
           "Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian "
           "Myanmar Oriya Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Yi Common Inherited").split()
# Bits of a run. Oniguruma's \w is not Rust's \w (which `single_word` uses), and Digits asks Rust.
FLAGS = [("WORD", r"\w"), ("ALPHA", r"[[:alpha:]]"), ("UPPER", r"[[:upper:]]"), ("LOWER", r"[[:lower:]]"),
         ("PUNCT", r"[[:punct:]]"), ("RUST_WORD", None), ("RUST_NUMERIC", None)]
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
STEP = 1 << 14


def matched(pattern):
    """The code points that a pattern of one character matches."""
    split, out = pre_tokenizers.Split(Regex(pattern), "removed"), set()
    for at in range(0, len(POINTS), STEP):
        part = POINTS[at:at + STEP]
        left = set()
        for _, (a, b) in split.pre_tokenize_str("".join(map(chr, part))):
            left.update(range(a, b))
        out.update(c for i, c in enumerate(part) if i not in left)
    return out


def after_x(pre, is_in):
    """The code points c for which is_in(starts, position of c) in the text "xc xc ..." as `pre` cuts it."""
    out = set()
    for at in range(0, len(POINTS), STEP):
        part = POINTS[at:at + STEP]
        inside, starts = set(), set()
        for _, (a, b) in pre.pre_tokenize_str("".join("x" + chr(c) for c in part)):
            inside.update(range(a, b))
            starts.add(a)
        out.update(c for i, c in enumerate(part) if is_in(inside, starts, 2 * i + 1))
    return out


def main():
    kind = [0] * 0x110000
    for i, name in enumerate(CATEGORIES):
        for c in matched(r"\p{%s}" % name) if i else ():
            assert kind[c] == 0, (hex(c), name)
            kind[c] = i
    for i, (name, pattern) in enumerate(FLAGS):
        if pattern:
            found = matched(pattern)
        elif name == "RUST_WORD":
            found = after_x(pre_tokenizers.Whitespace(), lambda inside, starts, at: at in inside and at not in starts)
        else:
            found = after_x(pre_tokenizers.Digits(individual_digits=True), lambda inside, starts, at: at in starts)
        for c in found:
            kind[c] |= 1 << 5 + i
    script = [0] * 0x110000
    for i, name in enumerate(SCRIPTS):
        for c in matched(r"\p{%s}" % name):
            script[c] = i + 1
    runs = []
    for c in range(0x110000):
        now = (kind[c], script[c])
        if not runs or runs[-1][1:] != now:
            runs.append((c,) + now)
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* unicode_table.c: made by scripts/make_unicode.py from tokenizers %s; do not edit. */" % tokenizers.__version__,
           '#include "text/unicode_table.h"', "", "const char unicode_made_from[] = \"tokenizers %s\";" % tokenizers.__version__,
           "const int unicode_n_runs = %d;" % len(runs), "/* clang-format off */"]

    def numbers(head, items, per_line=120):
        line = ""
        out.append(head + " = {")
        for x in items:
            if len(line) + len(x) + 1 > per_line:
                out.append(line)
                line = ""
            line += x + ","
        out.append(line)
        out.append("};")

    numbers("const uint32_t unicode_from[]", ["%d" % r[0] for r in runs])
    numbers("const uint16_t unicode_kind[]", ["%d" % r[1] for r in runs])
    numbers("const uint8_t unicode_script[]", ["%d" % r[2] for r in runs])
    numbers("const char *const unicode_scripts[]", ['"%s"' % s for s in SCRIPTS])
    out.append("const int unicode_n_scripts = %d;" % len(SCRIPTS))
    print("\n".join(out))
    print("%d runs, %d letters" % (len(runs), sum(1 <= k % 32 <= 5 for k in kind)), file=sys.stderr)


main()
