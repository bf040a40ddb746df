#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long large vocabularies take to load, beside the `tokenizers` library, in turn.

    pip install tokenizers
    bench/peers/tokenizers_load.py build/tutti [--kinds o200k,llama3,gemma,xlm_r] [--turns 5] [--keep FOLDER] [--out FILE.json]

The files are made here, of the published ones' kind, size and number of rules (random words, the same ones on every machine): o200k 200k
tokens and 446k merges, llama3 128k and 280k, gemma 262k over characters and 515k, xlm_r a Unigram of 250k. A few hundred bytes of text are
tokenised; their ids are compared. tutti's time is the whole command's, from its start to the written token file, less that of the same
command with the byte tokenizer; the library's is `Tokenizer.from_file` and the encoding, without Python's start. Processor time, which other
work on the machine disturbs least: the least of the turns.
"""
import argparse
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time

EOS = "<|endoftext|>"
TEXT = "The small boats came home before the storm, 1234 of them; \u00e4\u00f6\u00fc \u4e2d\u6587 were said.\n    int main(void) { return 0; }\n" * 3
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def alphabet():
    """The letters of bytes, in the order of the bytes."""
    prints = [b for b in range(256) if 33 <= b <= 126 or (b >= 161 and b != 173)]
    out, n = {}, 0
    for b in range(256):
        out[b] = chr(b if b in prints else 256 + n)
        n += b not in prints
    return [out[b] for b in range(256)]


def words(letters, vocab, merges, draw):
    """Tokens in the order of their ids, each joined of two earlier ones, and rules: first those, then other ways to the same words."""
    tokens, known, rules = list(letters), set(letters), []
    weights = [1 / (i + 1) ** 0.5 for i in range(len(letters))]
    common = draw.choices(letters, weights, k=4096)
    while len(tokens) < vocab:
        left = draw.choice(tokens[-20000:] if draw.random() < 0.5 else common)
        right = draw.choice(common) if draw.random() < 0.6 else draw.choice(tokens[:4000])
        if len(left + right) > 16 or left + right in known:
            continue
        tokens.append(left + right)
        known.add(left + right)
        rules.append((left, right))
    there = set(rules)
    for word in tokens:
        for cut in range(1, len(word)):
            pair = (word[:cut], word[cut:])
            if len(rules) < merges and pair not in there and pair[0] in known and pair[1] in known:
                rules.append(pair)
                there.add(pair)
    return tokens, rules


def added(token, i):
    return {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def make(kind, path):
    draw = random.Random(kind)
    root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": None}
    if kind in ("o200k", "llama3"):
        tokens, rules = words(alphabet(), *((199998, 446189) if kind == "o200k" else (128000, 280147)), draw)
        root["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
        root["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        root["model"] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": False, "byte_fallback": False, "ignore_merges": kind == "llama3",
                         "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [f"{a} {b}" for a, b in rules]}
    elif kind == "gemma":
        letters = ["\u2581"] + [chr(c) for c in range(33, 127)] + [chr(c) for c in range(0xC0, 0x250)] + [chr(c) for c in range(0x4E00, 0x6E00)]
        tokens, rules = words(letters, 261000, 514906, draw)
        tokens = ["<unk>"] + ["<0x%02X>" % b for b in range(256)] + tokens
        root["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        root["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                            {"type": "ByteFallback"}, {"type": "Fuse"}]}
        root["model"] = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                         "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [list(r) for r in rules]}
    else:
        letters = ["\u2581"] + [chr(c) for c in range(33, 127)] + [chr(c) for c in range(0xC0, 0x250)] + [chr(c) for c in range(0x4E00, 0x5E00)]
        tokens, _ = words(letters, 249000, 0, draw)
        root["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        root["decoder"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        root["model"] = {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                         "vocab": [["<unk>", 0.0]] + [[t, struct.unpack("f", struct.pack("f", -3 - 12 * draw.random()))[0]] for t in tokens]}
    n = len(root["model"]["vocab"])
    root["added_tokens"] = [added(EOS, n)]
    with open(path, "w", encoding="utf-8") as f:  # in lines, as the library writes
        json.dump(root, f, ensure_ascii=False, indent=2)


def library(path, text):
    """Runs in a process of its own: the time of the load and the encoding, and the ids."""
    import tokenizers
    start = time.process_time()
    t = tokenizers.Tokenizer.from_file(path)
    ids = t.encode(text, add_special_tokens=False).ids
    print(json.dumps({"s": time.process_time() - start, "ids": ids + [t.token_to_id(EOS)], "version": tokenizers.__version__}))


def children_s():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def main():
    a = argparse.ArgumentParser()
    a.add_argument("tutti")
    a.add_argument("--kinds", default="o200k,llama3,gemma,xlm_r")
    a.add_argument("--turns", type=int, default=5)
    a.add_argument("--keep", help="a folder in which the files stay, and are found again")
    a.add_argument("--out")
    a = a.parse_args()
    results, equal = {}, True
    with tempfile.TemporaryDirectory() as where:
        with open(f"{where}/text.txt", "w", encoding="utf-8", newline="") as f:
            f.write(TEXT)

        def tutti(tokenizer):
            start = children_s()
            got = json.loads(subprocess.run([a.tutti, "data", "tokenize", "--tokenizer", tokenizer, "--out", f"{where}/x", "--threads", "1",
                                             "--json", f"{where}/text.txt"], check=True, capture_output=True).stdout)
            return children_s() - start, got["tokens"]
        for kind in a.kinds.split(","):
            path = f"{a.keep or where}/load-{kind}.json"
            if not os.path.exists(path):
                make(kind, path)
            ours, alone, theirs = [], [], []
            for _ in range(a.turns):
                peer = json.loads(subprocess.run([sys.executable, __file__, "--library", path], check=True, capture_output=True).stdout)
                theirs.append(peer["s"])
                alone.append(tutti("byte")[0])
                s, n = tutti(path)
                ours.append(s)
            with open(f"{where}/x.tok", "rb") as f:
                width = struct.unpack_from("<I", f.read(4096), 12)[0]
                ids = list(struct.unpack(f"<{n}{'H' if width == 2 else 'I'}", f.read(n * width)))
            equal = equal and ids == peer["ids"]
            load = min(ours) - min(alone)
            results[kind] = {"tokenizers": peer["version"], "peer_s": round(min(theirs), 4), "tutti_s": round(load, 4),
                             "command_s": round(min(ours), 4), "file_bytes": os.path.getsize(path), "equal": ids == peer["ids"]}
            print(f"{kind:7} {os.path.getsize(path) / 1e6:5.1f} MB  tokenizers {peer['version']} {min(theirs):.3f} s  tutti {load:.3f} s "
                  f"(the whole command {min(ours):.3f})  ids {'equal' if ids == peer['ids'] else 'DIFFER'}", flush=True)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
    return 0 if equal else 1


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--library":
        library(sys.argv[2], TEXT)
        sys.exit(0)
    sys.exit(main())
