#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/script_runs.c: which code points the `tokenizers` library's UnicodeScripts takes for one script.

    pip install tokenizers; python3 scripts/make_script_runs.py > src/text/script_runs.c

Measured: two characters are of one script where the library does not cut between them; one that is cut from neither a Latin nor a
Cyrillic letter is of any. Development only: the build reads the result.
"""
import tokenizers
from tokenizers import pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def cut(text):
    return [piece for piece, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)]


def main():
    anything = {c for c in POINTS if len(cut("a" + chr(c))) == 1 and len(cut("\u0431" + chr(c))) == 1}
    pieces = cut("".join(chr(c) for c in POINTS if c not in anything))
    kinds, script = [], {}
    for piece in pieces:
        k = next((k for k, first in enumerate(kinds) if len(cut(first + piece[0])) == 1), len(kinds))
        if k == len(kinds):
            kinds.append(piece[0])
        for c in piece:
            script[ord(c)] = k + 1
    runs = []
    for c in range(0x110000):
        k = script.get(c, 0)
        if k and runs and runs[-1][1] == c - 1 and runs[-1][2] == k:
            runs[-1][1] = c
        elif k:
            runs.append([c, c, k])
    print("""/* SPDX-License-Identifier: Apache-2.0 */
/* script_runs.c: made by scripts/make_script_runs.py from tokenizers %s; do not edit. */
#include "text/script_runs.h"

/* clang-format off */
const struct script_run script_runs[] = {""" % tokenizers.__version__)
    for i in range(0, len(runs), 8):
        print("".join("{%d,%d,%d}," % tuple(r) for r in runs[i:i + 8]))
    print("};\n/* clang-format on */\nconst int n_script_runs = sizeof script_runs / sizeof *script_runs;")
    print("""
int script_of(uint32_t code)
{
    int lo = 0, hi = n_script_runs;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (code > script_runs[mid].hi) lo = mid + 1;
        else hi = mid;
    }
    return lo < n_script_runs && code >= script_runs[lo].lo ? script_runs[lo].script : 0;
}""")


main()
