#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `tutti data tokenize` is beside the `tokenizers` library, on the same documents and the same cores.

    pip install tokenizers
    bench/peers/tokenizers_speed.py build/tutti [--mib 64] [--vocab 32000] [--threads 1] [--turns 3] [--out FILE.json] [FOLDER...]

Collects text files of the folders (default: documentation, Python, Perl and C sources of this machine), each content once, trains a
vocabulary of each style on them with `tokenizers`, and lets both tokenise all documents in turn: `encode_batch_fast` on texts that lie in
memory, tutti from the files to a token file, with its start and the reading of the vocabulary. Every id is compared. Prints MiB per second
of processor time, which other work on the machine disturbs least, best of the turns, and the ratio of the two in each turn; and the ratio of
wall clocks, which counts how well the threads are used too.
"""
import argparse
import hashlib
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

FOLDERS = ["/usr/share/doc", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/perl", "/usr/include", "/usr/share/info", "/usr/share/vim",
           "/usr/share/common-licenses", "/usr/local/lib/python3.11", "/usr/share/dict", "/usr/share/i18n"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EOS = "<|endoftext|>"


def collect(folders, limit):
    """Texts of the folders in a fixed order, each once, spread over them."""
    seen, lists = set(), []
    for folder in folders:
        texts = []
        for at, dirs, names in os.walk(folder):
            dirs.sort()
            for name in sorted(names):
                path = os.path.join(at, name)
                if os.path.islink(path) or not 200 < os.path.getsize(path) < 1 << 20:
                    continue
                with open(path, "rb") as f:
                    raw = f.read()
                key = hashlib.sha1(raw).digest()
                if b"\0" in raw or key in seen:
                    continue
                try:
                    texts.append(raw.decode("utf-8"))
                except UnicodeDecodeError:
                    continue
                seen.add(key)
            if sum(map(len, texts)) > limit:
                break
        lists.append(texts)
    out, total, i = [], 0, 0
    while total < limit and any(lists):
        texts = lists[i % len(lists)]
        if texts:
            out.append(texts.pop())
            total += len(out[-1].encode())
        i += 1
    return out, total


def children_s():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def train(style, texts, vocab):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    if style == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, special_tokens=[EOS], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def main():
    a = argparse.ArgumentParser()
    a.add_argument("tutti")
    a.add_argument("folders", nargs="*")
    a.add_argument("--mib", type=int, default=64)
    a.add_argument("--vocab", type=int, default=32000)
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--turns", type=int, default=3)
    a.add_argument("--out")
    a = a.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(a.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if a.threads > 1 else "false"
    import tokenizers
    texts, total = collect(a.folders or FOLDERS, a.mib << 20)
    results = {"tokenizers": tokenizers.__version__, "bytes": total, "documents": len(texts), "threads": a.threads}
    print(f"{total / 2**20:.1f} MiB in {len(texts)} documents; tokenizers {tokenizers.__version__}; {a.threads} threads", flush=True)
    with tempfile.TemporaryDirectory() as where:
        os.mkdir(f"{where}/text")
        for i, text in enumerate(texts):
            with open(f"{where}/text/{i:06}.txt", "w", encoding="utf-8", newline="") as f:
                f.write(text)
        for style in ["gpt2", "llama3"]:
            t = train(style, texts, a.vocab)
            t.save(f"{where}/t.json")
            turns = []
            for _ in range(a.turns):
                start, cpu = time.time(), time.process_time()
                encoded = t.encode_batch_fast(texts, add_special_tokens=False)
                theirs = (time.process_time() - cpu, time.time() - start)
                start, cpu = time.time(), children_s()
                got = json.loads(subprocess.run([a.tutti, "data", "tokenize", "--tokenizer", f"{where}/t.json", "--out", f"{where}/x", "--threads",
                                                 str(a.threads), "--json", f"{where}/text"], check=True, capture_output=True).stdout)
                turns.append(theirs + (children_s() - cpu, time.time() - start))
            eos = t.token_to_id(EOS)
            wanted = []
            for e in encoded:
                wanted += e.ids
                wanted.append(eos)
            with open(f"{where}/x.tok", "rb") as f:
                head = f.read(4096)
                width = struct.unpack_from("<I", head, 12)[0]
                ids = list(struct.unpack(f"<{got['tokens']}{'H' if width == 2 else 'I'}", f.read(got["tokens"] * width)))
            equal = ids == wanted
            rate = [total / 2**20 / min(x[k] for x in turns) for k in (0, 2)]
            ratios = sorted(x[0] / x[2] for x in turns)
            wall = sorted(x[1] / x[3] for x in turns)
            results[style] = {"peer_mib_s": round(rate[0], 2), "tutti_mib_s": round(rate[1], 1), "ratios": [round(r, 1) for r in ratios],
                              "wall_ratios": [round(r, 1) for r in wall],
                              "tokens": len(ids), "equal": equal}
            print(f"{style:7} tokenizers {rate[0]:7.2f}  tutti {rate[1]:7.1f} MiB per second of processor time; ratios "
                  f"{', '.join(f'{r:.1f}' for r in ratios)}; of wall clocks {', '.join(f'{r:.1f}' for r in wall)}; {len(ids)} ids {'equal' if equal else 'DIFFER'}", flush=True)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
    return 0 if all(results[s]["equal"] for s in ["gpt2", "llama3"]) else 1


if __name__ == "__main__":
    sys.exit(main())
