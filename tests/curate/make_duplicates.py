#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recall and precision of `tutti data dedup --steps near` on a made corpus with known duplicates.

    tests/curate/make_duplicates.py build/tutti [DOCUMENTS]

Documents are words drawn by Zipf's law, 50 to 600 of them; a third have copies, each with some of its words replaced, dropped, put in
or moved in blocks, so many that their likeness (the Jaccard index of their shingles of five words) is anywhere from 0.4 to 1. The
likeness of every pair is computed exactly from the shingles themselves. Nothing but Python's own library is needed."""
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

THRESHOLD = 0.8


def shingles(words):
    return {tuple(words[i:i + 5]) for i in range(max(1, len(words) - 4))}


def edited(words, r):
    out, rate = list(words), r.choice([0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08])
    for _ in range(round(rate * len(out))):
        i, kind = r.randrange(len(out)), r.randrange(4)
        if kind == 0:
            out[i] = "w%d" % r.randrange(50000)
        elif kind == 1:
            del out[i]
        elif kind == 2:
            out.insert(i, "w%d" % r.randrange(50000))
        else:
            k = r.randrange(1, 20)
            block = out[i:i + k]
            del out[i:i + k]
            j = r.randrange(len(out) + 1)
            out[j:j] = block
    return out or ["w1"]


def make(n, r):
    weights = [1 / (k + 1) for k in range(50000)]
    total, cumulated = 0, []
    for w in weights:
        total += w
        cumulated.append(total)
    names = ["w%d" % k for k in range(50000)]
    documents = []
    while len(documents) < n:
        base = r.choices(names, cum_weights=cumulated, k=r.randrange(50, 600))
        documents.append(base)
        if r.random() < 1 / 3:
            documents += [edited(base, r) for _ in range(r.randrange(1, 4))]
    r.shuffle(documents)
    return documents


def likeness(documents):
    """Of every pair that shares a shingle: {(i, j): Jaccard}, i < j."""
    sets, holders, shared = [shingles(d) for d in documents], collections.defaultdict(list), collections.Counter()
    for i, s in enumerate(sets):
        for x in s:
            holders[x].append(i)
    for h in holders.values():
        if len(h) <= 50:
            shared.update((a, b) for k, a in enumerate(h) for b in h[k + 1:])
    return {p: c / (len(sets[p[0]]) + len(sets[p[1]]) - c) for p, c in shared.items()}


def main():
    program, n = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    documents = make(n, random.Random(20))
    alike = likeness(documents)
    print("%d documents, %d pairs with a likeness of 0.4 or more, %d of %g or more" % (
        len(documents), sum(v >= 0.4 for v in alike.values()), sum(v >= THRESHOLD for v in alike.values()), THRESHOLD))
    near = collections.defaultdict(dict)
    for (a, b), v in alike.items():
        near[b][a] = v
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "in.jsonl"), "w") as f:
            for i, d in enumerate(documents):
                f.write(json.dumps({"id": i, "text": " ".join(d)}) + "\n")
        for how in [], ["--unverified"]:
            out = os.path.join(folder, "out%d" % len(how))
            subprocess.run([program, "data", "dedup", "--out", out, "--steps", "near", "--threshold", str(THRESHOLD),
                            "--shingles", "words:5", os.path.join(folder, "in.jsonl")] + how, check=True, capture_output=True)
            kept = {json.loads(line)["id"] for name in os.listdir(out) if name.startswith("part-") for line in open(os.path.join(out, name))}
            removed = set(range(len(documents))) - kept
            # A document ought to go where an earlier one is alike; it is right that it went where any is (pairs of pairs join).
            best = [max(near[i].values(), default=0) for i in range(len(documents))]
            any_like = list(best)
            for (a, b), v in alike.items():
                any_like[a] = max(any_like[a], v)
            wanted = {i for i, v in enumerate(best) if v >= THRESHOLD}
            print("%s: removed %d; recall %.4f of %d; precision %.4f (%.4f at a likeness of %g)" % (
                " ".join(how) or "verified", len(removed), len(wanted & removed) / len(wanted), len(wanted),
                sum(any_like[i] >= THRESHOLD for i in removed) / len(removed),
                sum(any_like[i] >= THRESHOLD - 0.1 for i in removed) / len(removed), THRESHOLD - 0.1))
            for lo in 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0:
                hi = {0.4: 0.5, 0.5: 0.6, 0.6: 0.7}.get(lo, lo + 0.05)
                group = [i for i, v in enumerate(best) if lo <= v < hi]
                if group:
                    print("  likest earlier one %.2f to %.2f: %d, removed %.4f" % (lo, min(hi, 1), len(group), sum(i in removed for i in group) / len(group)))


main()
