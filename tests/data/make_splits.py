#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/fixtures/splits.json with the `tokenizers` library: hard expressions, hard texts, and where it cuts.

    pip install tokenizers; python3 tests/data/make_splits.py

{"texts": [...], "patterns": [{"pattern": ..., "ends": [[ends of pieces in bytes], ... one list per text]}, ...]}. And digests over
all code points: for every pattern of one character in "classes", how many code points it matches and the sum of their numbers.
"""
import json
import os
import random

from tokenizers import Regex, pre_tokenizers

C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL,
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL,
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + C + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}"
    r"\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + C + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"\p{N}{1,3}+", r"\p{N}{2,3}+", r"\p{N}{2,3}", r"\p{Han}", r"\p{^L}+", r"\P{Latin}", r"\w+", r"\W", r"\d+", r"$", r"^", r"^\s+", r"\s+$", r"\h",
    r"\H+", r"\v", r"(?m:.)+", r".+", r"[[:alpha:]]+|[[:digit:]]+", r"[[:punct:]]", r"[[:^space:]&&[^a-f]]+", r"[^[^a-z]]+", r"[a-z&&[^aeiou]]+",
    r"\bthe\b", r"\B.", r"(?<=\w)\s", r"(?<![a-z])1", r"x*", r"a??", r"(?>\w+)s", r"(\w)\1", r"(?i:stra\u00dfe|kelvin|off)".replace(r"\u00df", "\u00df"), r"\R",
    r"(?:ab|a)(?:bc|c)?", r"\x{4e16}|\u754c|\x41", r"a{,2}b", r"[\]\-^]+|[a\-z]", r"(?=[0-9])", r"(?!\d).", r"\s(?=\S)|(?:)",
    r"[^\n]+|\n", r"\p{Lu}\p{Ll}*|\p{Sc}|\p{Emoji}" if False else r"\p{Lu}\p{Ll}*|\p{Sc}", r"[\w&&[^\d_]]+", r"\t|\f|\e|\a", r"[\b]",
]
CLASSES = [r"\w", r"\W", r"\d", r"\s", r"\S", r"\h", r"\v", r".", r"(?m:.)", r"[[:alpha:]]", r"[[:upper:]]", r"[[:lower:]]", r"[[:punct:]]",
           r"[[:alnum:]]", r"[[:space:]]", r"[[:xdigit:]]", r"[[:word:]]", r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{Lu}", r"\p{Ll}",
           r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{LC}", r"\p{Nd}", r"\p{Sc}", r"\p{Cc}", r"\p{Co}", r"\p{Any}", r"\p{Letter}", r"\p{Alphabetic}", r"\p{Han}",
           r"\p{Hiragana}", r"\p{Katakana}", r"\p{Hangul}", r"\p{Latin}", r"\p{Greek}", r"\p{Cyrillic}", r"\p{Arabic}", r"\p{Hebrew}", r"\p{Thai}",
           r"\p{Devanagari}", r"\p{Common}", r"\p{Inherited}", r"\p{Lowercase_Letter}", r"(?i:s)", r"(?i:k)", r"(?i:e)", r"(?i:')", r"[^\r\n\p{L}\p{N}]", r"[\w]", r"[\W]", r"[\p{Word}]", r"\p{Word}", r"\P{Word}",
           r"\p{Punct}", r"\p{Upper}", r"\p{Lowercase}", r"\p{Alnum}", r"[^\W]"]
BITS = ["the", " ", "  ", "\n", "\r\n", "\t", "\v", "\f", "a", "A", "z", "s", "S", "'s", "'LL", "'ve", "1", "12", "1234567", "\u0663", "\u00bd", "\u4e16", "\u754c",
        "\u3042", "\u30ab", "\u00e9", "e\u0301", "\u00df", "\u017f", "\u212a", "KELVIN", "stra\u00dfe", "STRASSE", "\ufb00", "o\ufb03", "_", "-", ".", ",", "!?", "$", "\u20ac", "\u2019", "\u200d",
        "\U0001f600", "\U0001f468\u200d\U0001f469", "\u05d0", "\u0627", "\u0e01", "\u0915\u094d", "\u00a0", "\u3000", "\u2028", "\u0085", "\x00", "\x1b", "\b", "ab", "abc", "aab", "^", "]", "\\",
        "\U00010d40", "\U00010d4a", "\u1c89", "\ua7cb", "\U0001e5d0", "\u24b6", "\u0378", "\U000e0001", "\U0010fffd", "thethe", "f0", "//"]


def texts():
    rng = random.Random(5)
    out = ["", "\n", "a\n\nb", "x " * 5, "no end  \n  "] + ["".join(rng.choice(BITS) for _ in range(rng.randint(1, 24))) for _ in range(90)]
    return out + ["a" + b + "1" for b in BITS]


def ends(split, text):
    at, out = [0], []
    for c in text:
        at.append(at[-1] + len(c.encode()))
    for _, (a, b) in split.pre_tokenize_str(text):
        out.append(at[b])
    return out


def digest(pattern):
    split, points, count, total = pre_tokenizers.Split(Regex(pattern), "removed"), [c for c in range(0x110000) if not 0xD800 <= c < 0xE000], 0, 0
    for k in range(0, len(points), 1 << 14):
        part, left = points[k:k + (1 << 14)], set()
        for _, (a, b) in split.pre_tokenize_str("".join(map(chr, part))):
            left.update(range(a, b))
        hits = [c for i, c in enumerate(part) if i not in left]
        count += len(hits)
        total += sum(hits)
    return {"pattern": pattern, "count": count, "sum": total}


def main():
    all_texts = texts()
    rows = [{"pattern": p, "ends": [ends(pre_tokenizers.Split(Regex(p), "isolated"), t) for t in all_texts]} for p in PATTERNS]
    where = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "splits.json")
    with open(where, "w", encoding="utf-8") as f:
        f.write('{"texts":' + json.dumps(all_texts, separators=(",", ":")) + ',\n"patterns":[\n')
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))
        f.write('\n],\n"classes":[\n' + ",\n".join(json.dumps(digest(p), separators=(",", ":")) for p in CLASSES) + "\n]}\n")


main()
