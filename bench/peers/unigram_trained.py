#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Unigram vocabulary that tutti learns beside one that the `tokenizers` library learns of the same text.

    pip install tokenizers; bench/peers/unigram_trained.py build/tutti TEXT HELD_OUT_TEXT [VOCAB] [--out FILE.json]

The library must load tutti's file and give every text back; compared are the tokens that held-out text takes, and the time.
"""
import json
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

tutti, text_path, held_path = sys.argv[1:4]
vocab = int(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[4].isdigit() else 8000
out = sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else None
text, held = (open(p, encoding="utf-8", newline="").read() for p in (text_path, held_path))
results = {"bytes": len(text.encode()), "vocab": vocab}

with tempfile.TemporaryDirectory() as where:
    start = time.time()
    subprocess.run([tutti, "data", "train-tokenizer", "--model", "unigram", "--threads", "1", "--vocab-size", str(vocab), "--out",
                    f"{where}/t.json", text_path], check=True)
    results["tutti_s"] = round(time.time() - start, 1)
    ours = Tokenizer.from_file(f"{where}/t.json")
assert ours.get_vocab_size() == vocab, ours.get_vocab_size()
lines = held.split("\n")
lost = sum(ours.decode(ours.encode(x, add_special_tokens=False).ids) != x for x in lines if x and not x.startswith(" "))
results["lines"], results["lost"] = len(lines), lost

theirs = Tokenizer(models.Unigram())
theirs.pre_tokenizer = pre_tokenizers.Metaspace()
theirs.decoder = decoders.Metaspace()
start = time.time()
theirs.train_from_iterator(text.split("\n"), trainers.UnigramTrainer(vocab_size=vocab - 257, unk_token="<unk>", special_tokens=["<unk>"],
                                                                     show_progress=False))
results["peer_s"] = round(time.time() - start, 1)
for name, t in (("tutti", ours), ("peer", theirs)):
    results[name + "_tokens"] = sum(len(e.ids) for e in t.encode_batch_fast(lines, add_special_tokens=False))
print(json.dumps(results))
if out:
    with open(out, "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
sys.exit(1 if lost else 0)
