#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `tutti data tokenize` is beside the `tokenizers` library, on the same documents and the same cores.

    pip install tokenizers        # and sentencepiece, for t5's table of characters
    bench/peers/tokenizers_speed.py build/tutti [--mib 64] [--vocab 32000] [--threads 1] [--turns 3] [--kinds gpt2,llama3] [--keep FOLDER] [--out FILE.json] [FOLDER...]

Collects text files of the folders (default: documentation, Python, Perl and C sources of this machine), each content once, trains a
vocabulary of each kind (gpt2, llama3, llama2, mistral, gemma, bert, t5, t5_nfkc) on them, at most the first 8 MiB (Unigram: 1), with `tokenizers`, and lets both tokenise all documents in turn: `encode_batch_fast` on texts that lie in
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


def charsmap():
    """SentencePiece's nmt_nfkc, which T5's file carries: field 2 of field 3 of any model that it trains."""
    import sentencepiece

    def field(message, wanted):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(message):
            tag = varint()
            if tag & 7 == 0:
                varint()
                continue
            n = varint() if tag & 7 == 2 else 4 if tag & 7 == 5 else 8
            if tag >> 3 == wanted:
                return message[at:at + n]
            at += n
    with tempfile.TemporaryDirectory() as where:
        with open(f"{where}/text", "w") as f:
            f.write("the quick brown fox jumps over the lazy dog\n" * 50)
        sentencepiece.SentencePieceTrainer.train(input=f"{where}/text", model_prefix=f"{where}/m", vocab_size=40, hard_vocab_limit=False,
                                                 normalization_rule_name="nmt_nfkc", minloglevel=2)
        with open(f"{where}/m.model", "rb") as f:
            return field(field(f.read(), 3), 2)


def train(style, texts, vocab):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    n = 0
    for i, text in enumerate(texts):
        n += len(text)
        if n > (1 if style.startswith("t5") else 8) << 20:  # the library's Unigram trainer is slow
            texts = texts[:i]
            break
    special = dict(special_tokens=[EOS], show_progress=False)
    if style in ("llama2", "mistral", "gemma"):
        t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        marks = normalizers.Replace(" ", "\u2581")
        t.normalizer = marks if style == "gemma" else normalizers.Sequence([normalizers.Prepend("\u2581"), marks])
        t.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")  # for training only: the library has no limit of a word
        special["special_tokens"] = ["<unk>", EOS] + ["<0x%02X>" % b for b in range(256)]
        t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, limit_alphabet=1000, **special))
        t.pre_tokenizer = None
        if style == "mistral":  # as newer files have it
            t.normalizer, t.pre_tokenizer = None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        if style == "gemma":
            t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        return t
    if style == "bert":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer(lowercase=True)
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special["special_tokens"] = ["[UNK]", EOS]
        t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=vocab, limit_alphabet=1000, **special))
        return t
    if style in ("t5", "t5_nfkc"):
        t = Tokenizer(models.Unigram())
        t.normalizer, t.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        if style == "t5":
            t.normalizer = normalizers.Precompiled(charsmap())
            t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        special["special_tokens"] = ["<unk>", EOS]
        t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=vocab, unk_token="<unk>", **special))
        return t
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
    a.add_argument("--kinds", default="gpt2,llama3")
    a.add_argument("--keep", help="a folder in which vocabularies stay, and are found again")
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
        for style in a.kinds.split(","):
            path = f"{a.keep or where}/{style}.json"
            if not os.path.exists(path):
                train(style, texts, a.vocab).save(path)
            t = tokenizers.Tokenizer.from_file(path)  # scores as the library reads them, which ties hang on
            turns = []
            for _ in range(a.turns):
                start, cpu = time.time(), time.process_time()
                encoded = t.encode_batch_fast(texts, add_special_tokens=False)
                theirs = (time.process_time() - cpu, time.time() - start)
                start, cpu = time.time(), children_s()
                got = json.loads(subprocess.run([a.tutti, "data", "tokenize", "--tokenizer", path, "--out", f"{where}/x", "--threads",
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
    return 0 if all(results[s]["equal"] for s in a.kinds.split(",")) else 1


if __name__ == "__main__":
    sys.exit(main())
