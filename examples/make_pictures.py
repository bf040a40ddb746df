#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tar shards of small PNG pictures and their classes, for examples/vit.yaml: a disc, a square, a cross or stripes, of
any colour, size and place, on a noisy ground. Nothing but Python's own library; the same bytes every time.

    python3 examples/make_pictures.py DIR [--train 1600] [--valid 200] [--size 32]
"""
import argparse
import io
import os
import random
import struct
import tarfile
import zlib

CLASSES = ("disc", "square", "cross", "stripes")
SHARDS = 2  # of training


def is_inside(kind, x, y, r):
    """Whether a place this far from the middle belongs to a figure of that half width."""
    if kind == "disc":
        return x * x + y * y <= r * r
    if kind == "square":
        return abs(x) <= r * 0.85 and abs(y) <= r * 0.85
    if kind == "cross":
        return min(abs(x), abs(y)) <= r * 0.3 and max(abs(x), abs(y)) <= r
    return max(abs(x), abs(y)) <= r and int(y + 64) // 2 % 2 == 0


def draw(kind, size, rng):
    r = size * rng.uniform(0.2, 0.4)
    cx, cy = (rng.uniform(r, size - r) for _ in "xy")
    ground = [rng.randrange(256) for _ in range(3)]
    ink = [(c + rng.randrange(90, 166)) % 256 for c in ground]
    rows = bytearray()
    for y in range(size):
        rows.append(0)  # no filter
        for x in range(size):
            colour = ink if is_inside(kind, x - cx, y - cy, r) else ground
            rows += bytes(min(255, max(0, c + rng.randrange(-12, 13))) for c in colour)
    return bytes(rows)


def png(size, rows):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")


def add(tar, name, body):
    info = tarfile.TarInfo(name)
    info.size = len(body)
    tar.addfile(info, io.BytesIO(body))


def shard(path, first, n, size, rng):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(first, first + n):
            label = rng.randrange(len(CLASSES))
            add(tar, f"{i:06d}.png", png(size, draw(CLASSES[label], size, rng)))
            add(tar, f"{i:06d}.cls", b"%d" % label)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("dir")
    args.add_argument("--train", type=int, default=1600)
    args.add_argument("--valid", type=int, default=200)
    args.add_argument("--size", type=int, default=32)
    args = args.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    rng = random.Random(1)
    each = args.train // SHARDS
    for s in range(SHARDS):
        shard(os.path.join(args.dir, f"train-{s}.tar"), s * each, each, args.size, rng)
    shard(os.path.join(args.dir, "valid-0.tar"), 0, args.valid, args.size, rng)
    print(f"{args.dir}: {SHARDS * each} pictures to train on, {args.valid} to look at; classes {', '.join(CLASSES)}")


main()
