#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ids that tutti gives against those of the `tokenizers` library, for many documents of hard kinds.

    pip install tokenizers; bench/peers/tokenizers_ids.py build/tutti TEXT_TO_TRAIN_ON [DOCUMENTS_PER_KIND]

Trains a small BPE for each published splitting pattern (and for some that nobody published but anybody could write), makes
documents of each kind from a fixed seed, has tutti tokenise them as one .jsonl, and compares every id.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "gpt2": None,
    "llama3": [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "qwen2": [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "qwen3.5": [C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL],
    "deepseek-llm": [r"[\r\n]", r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0400-\u0481\u1e00-\u1f15]+",
                     r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"],
    "o200k": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + C + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}"
              r"\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + C + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL],
    "tekken": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
               r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL],
    "cl100k": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"],
    "words": [r"\w+|[^\w\s]+|\s+"],
    "han": [r"\p{Han}+|\p{Hiragana}+|\p{Katakana}+|\p{^L}|\P{Latin}"],
    "lines": [r"^\s*\w|\w\s*$|(?m:a.)|\h{2}|\v"],
    "posix": [r"[[:alpha:]]+|[[:digit:]]{1,3}+|[[:punct:]]+|[[:^space:]&&[^x]]"],
    "upper": [r"[[:upper:]][[:lower:]]*|\b[[:alnum:]]+\b|\Bz|(?<=[.!?])\s+"],
    "possessive": [r"\p{N}{1,3}+|\p{L}?+\p{L}|(?>a|ab)c|x*"],
    "lazy": [r".*?[,;]|\R|\d+?|(\w)\1"],
}


def characters(rng, ranges):
    lo, hi = rng.choice(ranges)
    return chr(rng.randint(lo, hi))


KINDS = {
    "ascii": [(32, 126), (97, 122), (97, 122), (32, 32), (9, 13)],
    "words": None,
    "emoji": [(0x1F300, 0x1FAFF), (0x200D, 0x200D), (0xFE0F, 0xFE0F), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF), (32, 126)],
    "combining": [(97, 122), (0x300, 0x36F), (0x1AB0, 0x1AFF), (0x20D0, 0x20F0), (32, 32), (0xFE20, 0xFE2F)],
    "rtl": [(0x590, 0x5FF), (0x600, 0x6FF), (0x200E, 0x200F), (0x202A, 0x202E), (0x660, 0x669), (32, 47), (0xFB1D, 0xFDFF)],
    "cjk": [(0x3000, 0x303F), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (48, 57), (0x20000, 0x2A6DF)],
    "control": [(0, 31), (127, 160), (0x2000, 0x206F), (97, 102), (32, 32), (0xFEFF, 0xFEFF), (0xFFF0, 0xFFFD)],
    "digits": [(48, 57), (48, 57), (0x660, 0x669), (0x966, 0x96F), (0x2160, 0x2188), (0xB2, 0xB3), (44, 46), (32, 32), (0x1D7CE, 0x1D7FF)],
    "spaces": [(32, 32), (32, 32), (9, 13), (0x2000, 0x200B), (0x85, 0x85), (0xA0, 0xA0), (0x3000, 0x3000), (97, 99), (0x1680, 0x1680)],
    "letters": [(65, 90), (97, 122), (0xC0, 0x24F), (0x370, 0x52F), (0x1E00, 0x1FFF), (39, 39), (32, 32), (0x10400, 0x1044F), (0x17F, 0x17F), (0x212A, 0x212A)],
    "all": [(0, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x10000, 0x10FFFF), (32, 126)],
    "runs": None,
    "added": None,
}
WORDS = ["the", " the", "don't", "I'LL", "we've", "O'Sullivan", "x's", "'s", "foo_bar", "FooBar", "12345", "3.14", "\r\n", "\n\n", "  ", "\t", "caf\u00e9", "stra\u00dfe",
         "na\u00efve", "\u4e16\u754c", "\u0434\u043e\u043c", "--", "...", "!?", "http://a.b/c?d=e", "#include", "\u2019s", " (", ")", "{}", "\U0001f600", "a.b,c;", "'\u017f", "ab", "abc"]
TOKENS = ["<|endoftext|>", "<abc>", "<ab", "c>", "one", " ", "  ", "<l>", "<r>", "\n", "x", "\u00e9", "_", "\u3000", "<"]


def document(kind, rng):
    n = rng.randint(1, 60)
    if kind == "words":
        return "".join(rng.choice(WORDS) + rng.choice(["", "", " ", "\n"]) for _ in range(n))
    if kind == "added":
        return "".join(rng.choice(TOKENS) for _ in range(n))
    if kind == "runs":
        return "".join(rng.choice(WORDS + [" ", "\n", "a", "\u00e9", "7", "\u4e16", "-"]) * rng.choice([1, 2, 3, 17, 300]) for _ in range(1 + n // 8))
    return "".join(characters(rng, KINDS[kind]) for _ in range(n))


def tokenizer(patterns, text):
    t = Tokenizer(models.BPE())
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=patterns is None)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns or []] + [last])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=1500, special_tokens=["<|endoftext|>"], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens([AddedToken("<abc>", normalized=True), AddedToken("<ab", normalized=False), AddedToken("one", single_word=True),
                  AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=True)])
    return t


def stream(path):
    """The ids of a .tok file (src/data/tokenfile.h); every document is followed by the end-of-text id."""
    with open(path, "rb") as f:
        data = f.read()
    width = struct.unpack_from("<I", data, 12)[0]
    n = struct.unpack_from("<q", data, len(data) - 64)[0]
    return list(struct.unpack_from("<%d%s" % (n, "H" if width == 2 else "I"), data, 4096))


def main():
    tutti, text = sys.argv[1], open(sys.argv[2], encoding="utf-8").read()[:400000]
    per_kind = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    rng = random.Random(1)
    documents = [document(kind, rng) for kind in KINDS for _ in range(per_kind)]
    bad = 0
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "all.jsonl")
        with open(source, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"text": x}) + "\n" for x in documents)
        for name, patterns in SPLITS.items():
            t = tokenizer(patterns, text)
            path, out = os.path.join(d, "tokenizer.json"), os.path.join(d, "out")
            t.save(path)
            run = subprocess.run([tutti, "data", "tokenize", "--tokenizer", path, "--out", out, source], capture_output=True, text=True)
            if run.returncode:
                print(name, "refused:", run.stderr.strip())
                continue
            eos = t.token_to_id("<|endoftext|>")
            want, ends = [], []
            for e in t.encode_batch(documents, add_special_tokens=False):
                want += e.ids + [eos]
                ends.append(len(want))
            got = stream(out + ".tok")
            wrong = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want) - 1))
            if got != want:
                bad += 1
                k = next(i for i, e in enumerate(ends) if e > wrong)
                print(name, "DIFFERS in document", k, "of kind", list(KINDS)[k // per_kind], repr(documents[k])[:300])
            else:
                print(name, len(documents), "documents,", len(want), "ids: equal", flush=True)
    sys.exit(bad > 0)


main()
