#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes datatrove.txt: what the filters of datatrove decide about the documents that test_datatrove.c makes.

    pip install datatrove spacy
    tests/curate/make_datatrove.py >tests/curate/datatrove.txt
    tests/curate/make_datatrove.py TUTTI A.jsonl    compares decisions on real documents instead

A line for each document: a letter for what GopherRepetitionFilter, GopherQualityFilter, FineWebQualityFilter and
C4QualityFilter say (. keeps; a, b ... the rule that drops, in the order of tutti's rules), words being what lies between
spaces; four hexadecimal digits of the text that C4 leaves; then the first three again with datatrove's own words, which
are spaCy's. The first line is a checksum of the documents.
"""
import collections
import functools
import json
import os
import subprocess
import sys
import tempfile

import datatrove.pipeline.filters.c4_filters as c4_filters
import datatrove.pipeline.filters.fineweb_quality_filter as fineweb
import datatrove.pipeline.filters.gopher_quality_filter as quality
import datatrove.pipeline.filters.gopher_repetition_filter as repetition
from datatrove.data import Document
from datatrove.utils.text import split_into_words

N = 3000
PLAIN = "the of and to that have with be house river mountain people water between something other number place every light".split()
RARE = ["caf\u00e9", "na\u00efve", "\u0441\u043b\u043e\u0432\u043e", "\u03bb\u03cc\u03b3\u03bf\u03c2", "\u4e16\u754c", "\u00fcber"]
SAID = ["lorem ipsum", "{", "JavaScript", "terms of use", "[12]", "[edit]", "cookie policy", "}"]
ENDS = ["", ".", "!", '?"', "...", "'", ".", "."]
RULES = {
    "dup_para_frac": "a", "dup_para_char_frac": "b", "dup_line_frac": "c", "dup_line_char_frac": "d",
    "top_2_gram": "e", "top_3_gram": "f", "top_4_gram": "g",
    **{f"duplicated_{n}_n_grams": "hijklm"[n - 5] for n in range(5, 11)},
    "gopher_short_doc": "a", "gopher_long_doc": "a", "gopher_below_avg_threshold": "b", "gopher_above_avg_threshold": "b",
    "gopher_too_many_hashes": "c", "gopher_too_many_ellipsis": "d", "gopher_too_many_bullets": "e",
    "gopher_too_many_end_ellipsis": "f", "gopher_below_alpha_threshold": "g", "gopher_enough_stop_words": "h",
    "line_punct_ratio": "a", "short_line_ratio": "b", "char_dup_ratio": "c", "list_ratio": "d", "empty": "a",
    "lorem_ipsum": "a", "curly_bracket": "b", "too_few_sentences": "c",
}


class Dice:
    def __init__(self, seed):
        self.state = seed

    def __call__(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def word(dice, style):
    if style == 2 and dice(6) == 0:
        return "#"
    if style == 3 and dice(8) == 0:
        return "..."
    if style == 4:
        return PLAIN[dice(5)]
    if style == 5 and dice(3):
        return str(dice(1000))
    if style == 10 and dice(40) == 0:
        return SAID[dice(8)]
    if style == 11:
        return "abcdefghijkl"[: 1 + dice(12)] * (1 + dice(2))
    if style == 12:
        return PLAIN[8 + dice(12)]
    if style == 13 and dice(3) == 0:
        return RARE[dice(6)]
    return PLAIN[dice(20)]


def line(dice, style):
    text = ["", "\u2022 ", "- "][dice(3)] if style == 6 else ""
    for i in range(1 + dice(5 if style == 1 else 26)):
        space = ["  ", "\t", "\u00a0", " "][dice(4)] if style == 14 else " "
        text += (space if i else "") + word(dice, style)
    return text + (["...", "\u2026", "."][dice(3)] if style == 7 else ENDS[dice(8)])


def make(number):
    dice = Dice(number + 1)
    style = dice(16) if dice(4) else 15
    lines = []
    for _ in range(1 + dice(14)):
        again = lines and (style == 8 and dice(3) == 0 or style == 9 and dice(2) == 0)
        lines.append(lines[dice(len(lines))] if again else line(dice, style))
        if style == 9 or dice(12) == 0:
            lines.append("")
    return "\n".join(lines) + "\n" * dice(2)


def fnv(data, h=0xCBF29CE484222325):
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def letter(result):
    return "." if result is True else RULES[result[1]]


def with_words(split):
    for module in (quality, repetition, fineweb):
        module.split_into_words = split


@functools.lru_cache(maxsize=4)
def spacy_words(text, language):
    return split_into_words(text, language)


FILTERS = (repetition.GopherRepetitionFilter(), quality.GopherQualityFilter(), fineweb.FineWebQualityFilter(char_duplicates_ratio=0.1))
C4 = c4_filters.C4QualityFilter(min_num_sentences=3, min_words_per_line=5)


def decide(text):
    with_words(lambda t, _: t.split())
    said = "".join(letter(f.filter(Document(text=text, id=""))) for f in FILTERS)
    document = Document(text=text, id="")
    c4 = letter(C4.filter(document))
    left = "%04x" % (fnv(document.text.encode()) & 0xFFFF) if c4 == "." else "----"
    with_words(spacy_words)
    return said + c4, left, "".join(letter(f.filter(Document(text=text, id=""))) for f in FILTERS)


def compare(tutti, path):
    """Of real documents: how often tutti keeps and drops as datatrove does, and by the same rule."""
    texts = [json.loads(line)["text"] for line in open(path)]
    wanted = [decide(t) for t in texts]
    names = ["gopher_repetition", "gopher_quality", "fineweb", "c4"]
    for kind, column in ("spaces", 0), ("marks", 2):
        for i, name in enumerate(names[: 4 if kind == "spaces" else 3]):
            with tempfile.TemporaryDirectory() as folder:
                rules, out = os.path.join(folder, "rules.yaml"), os.path.join(folder, "out")
                option = "" if name == "c4" else f": {{words: {kind}}}"
                open(rules, "w").write(f"rules:\n  - {name}{option}\n")
                subprocess.run([tutti, "data", "clean", rules, path, "--out", out, "--plain"], check=True, capture_output=True)
                kept = set()
                if os.path.exists(out + "/part-00000.jsonl"):
                    kept = {json.loads(line)["document"] for line in open(out + "/part-00000.jsonl")}
            differ = [(k, w[column][i]) for k, w in enumerate(wanted) if (w[column][i] == ".") != (k in kept)]
            print(f"{name}, words by {kind}: {len(texts) - len(differ)} of {len(texts)} alike; others {differ[:12]}")


if len(sys.argv) == 3:
    compare(sys.argv[1], sys.argv[2])
    sys.exit()
made = [make(i) for i in range(N)]
checksum = 0xCBF29CE484222325
for text in made:
    checksum = fnv(text.encode() + b"\0", checksum)
print("%016x" % checksum)
counts = collections.Counter()
for text in made:
    words, left, own = decide(text)
    print(words, left, own)
    counts.update(enumerate(words))
print(sorted(counts.items()), file=sys.stderr)
