#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tar shards of small PNG pictures and what is said of them, for examples/llava.yaml: a disc, a square or a cross, of one
of six colours, on a dark ground. A sample is a picture with a caption (.png, .txt), or one or two pictures with a question and
an answer (.png or .0.png and .1.png, .json). Nothing but Python's own library; the same bytes every time.

    python3 examples/make_picture_texts.py DIR [--train 1200] [--valid 60] [--size 24]
"""
import argparse
import io
import json
import os
import random
import struct
import tarfile
import zlib

SHAPES = ("disc", "square", "cross")
COLOURS = {"red": (230, 40, 40), "green": (40, 200, 60), "blue": (60, 80, 240), "white": (240, 240, 240),
           "yellow": (230, 220, 40), "pink": (240, 120, 200)}
SHARDS = 2  # of training


def is_inside(shape, x, y, r):
    if shape == "disc":
        return x * x + y * y <= r * r
    if shape == "square":
        return max(abs(x), abs(y)) <= r * 0.85
    return min(abs(x), abs(y)) <= r * 0.3 and max(abs(x), abs(y)) <= r


def draw(shape, colour, size, rng):
    r = size * rng.uniform(0.28, 0.42)
    cx, cy = (rng.uniform(r, size - r) for _ in "xy")
    rows = bytearray()
    for y in range(size):
        rows.append(0)  # no filter
        for x in range(size):
            ink = COLOURS[colour] if is_inside(shape, x - cx, y - cy, r) else (30, 30, 30)
            rows += bytes(min(255, max(0, c + rng.randrange(-12, 13))) for c in ink)
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


def chat(question, answer):
    return json.dumps({"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]}).encode()


def sample(tar, i, size, rng):
    shape, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    kind = i % 4
    if kind == 3:  # two pictures of two colours, asked for one of them
        other, where = rng.choice([c for c in COLOURS if c != colour]), rng.randrange(2)
        both = [colour, other] if where == 0 else [other, colour]
        for k, c in enumerate(both):
            add(tar, f"{i:06d}.{k}.png", png(size, draw(rng.choice(SHAPES), c, size, rng)))
        add(tar, f"{i:06d}.json", chat(f"<image><image>which is {colour}?", ("first", "second")[where]))
        return
    add(tar, f"{i:06d}.png", png(size, draw(shape, colour, size, rng)))
    if kind == 0:
        add(tar, f"{i:06d}.txt", f"a {colour} {shape}".encode())
    elif kind == 1:
        add(tar, f"{i:06d}.json", chat("<image>which colour?", colour))
    else:
        add(tar, f"{i:06d}.json", chat("<image>which shape?", shape))


def shard(path, first, n, size, rng):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(first, first + n):
            sample(tar, i, size, rng)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("dir")
    args.add_argument("--train", type=int, default=1200)
    args.add_argument("--valid", type=int, default=60)
    args.add_argument("--size", type=int, default=24)
    args = args.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    rng = random.Random(1)
    each = args.train // SHARDS
    for s in range(SHARDS):
        shard(os.path.join(args.dir, f"train-{s}.tar"), s * each, each, args.size, rng)
    shard(os.path.join(args.dir, "valid-0.tar"), 0, args.valid, args.size, rng)
    print(f"{args.dir}: {SHARDS * each} samples to train on, {args.valid} to look at")


main()
