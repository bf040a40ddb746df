#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes train.jsonl and valid.jsonl of lines and their classes, for examples/bert_classes.yaml: lines of this checkout that
are C (0), shell (1) or English (2). Nothing but Python's own library; the same bytes every time.

    python3 examples/make_lines.py DIR [--each 1500]
"""
import argparse
import glob
import json
import os
import random

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
KINDS = ("src/*/*.c", "scripts/*.sh", "docs/*.md")  # by class
VALID = 8  # one line of so many is kept for validation


def lines_of(pattern, keep):
    out = set()
    for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
        with open(path, encoding="utf-8") as f:
            out.update(line for line in map(str.strip, f) if 20 <= len(line) <= 100 and keep(line))
    return sorted(out)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("dir")
    args.add_argument("--each", type=int, default=1500)
    args = args.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    rng, records = random.Random(1), []
    for label, pattern in enumerate(KINDS):
        prose = label == 2
        lines = lines_of(pattern, (lambda s: s[0].isalpha()) if prose else (lambda s: s[0] not in "#/*|"))
        rng.shuffle(lines)
        records += [{"text": line, "label": label} for line in lines[: args.each]]
    rng.shuffle(records)
    for name, part in (("train", [r for i, r in enumerate(records) if i % VALID]), ("valid", records[::VALID])):
        with open(os.path.join(args.dir, name + ".jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in part)
        print(f"{args.dir}/{name}.jsonl: {len(part)} lines")


main()
