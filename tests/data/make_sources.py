#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/fixtures/{parquet,megatron,shards}/: small files as other programs write them. Development only:
needs pyarrow, numpy and megatron-core's wheel.

    tests/data/make_sources.py [--megatron megatron_core.whl]      writes the fixtures
    tests/data/make_sources.py --check build/tutti                 reads tables in every combination, larger ones, with the
                                                                   program, and compares what it reads with what was written
What is in the tables is a function of the row, which test_parquet.c knows too."""
import argparse
import importlib.util
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import types
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
CODECS = ["NONE", "SNAPPY", "GZIP", "ZSTD", "BROTLI", "LZ4"]
ENCODINGS = ["DICTIONARY", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
TEXTS = ["text", "tags.list.element", "message.role", "message.content"]


def text(i):
    return None if i % 7 == 3 else "" if i % 7 == 5 else "prefix-%03d é\n%s" % (i, "x" * (i % 4))


def tags(i):
    return None if i % 6 == 2 else [None if (i + j) % 5 == 0 else "" if (i + j) % 7 == 1 else "t%d.%d" % (i, j) for j in range(i % 4)]


def message(i):
    return None if i % 8 == 1 else {"role": "user", "content": None if i % 3 == 0 else "c%d" % i}


def table(n):
    rows = range(n)
    return pa.table({
        "id": pa.array(rows, pa.int64()),
        "text": pa.array([text(i) for i in rows], pa.string()),
        "tags": pa.array([tags(i) for i in rows], pa.list_(pa.string())),
        "message": pa.array([message(i) for i in rows], pa.struct([("role", pa.string()), ("content", pa.string())])),
    })


def wanted(column, n):
    """The documents that column holds: nulls and empty texts are none, a list's items are lines."""
    rows = range(n)
    if column == "text":
        found = [text(i) for i in rows]
    elif column == "tags":
        found = ["\n".join(t for t in tags(i) or [] if t is not None) for i in rows]
    else:
        found = [(message(i) or {}).get("content") for i in rows]
    return [t for t in found if t]


def write(path, t, codec, version, encoding, page, group, crc):
    how = {"use_dictionary": True} if encoding == "DICTIONARY" else {
        "use_dictionary": False, "column_encoding": {c: encoding for c in TEXTS}}
    pq.write_table(t, path, compression=codec, data_page_version=version, data_page_size=page, row_group_size=group,
                   write_page_checksum=crc, write_batch_size=4 if page < 1000 else 1024, store_schema=False,
                   write_statistics=False, **how)


def make_parquet(folder):
    os.makedirs(folder, exist_ok=True)
    t = table(24)
    for codec, version, encoding in itertools.product(CODECS, ["1.0", "2.0"], ENCODINGS):
        name = "%s-%s-%s.parquet" % (codec.lower(), version[0], encoding)
        write(os.path.join(folder, name), t, codec, version, encoding, 64, 10, len(encoding) % 2 == 0)


def record(i):
    """A row of the tables of whole records; nulls at every depth."""
    r = random.Random(i)
    word = lambda: None if r.random() < 0.15 else r.choice(["", "é\n\"quoted\" \\", "plain", "x" * r.randrange(40), "\t\u0001"])
    few = lambda item: None if r.random() < 0.15 else [item() for _ in range(r.randrange(4))]
    call = lambda: None if r.random() < 0.1 else {"name": word(), "args": few(word)}
    message = lambda: None if r.random() < 0.05 else {"role": r.choice(["user", "assistant"]), "content": word(), "calls": few(call)}
    return {"id": i, "messages": few(message), "note": word(), "lists": few(lambda: few(word)),
            "about": None if r.random() < 0.2 else {"lang": word(), "from": {"url": word()}},
            "score": {"x": 0.5, "why": "passed over"}, "embedding": [1.0, 2.0]}


RECORD = pa.schema([
    ("id", pa.int64()),
    ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()),
                                     ("calls", pa.list_(pa.struct([("name", pa.string()), ("args", pa.list_(pa.string()))])))]))),
    ("note", pa.string()),
    ("lists", pa.list_(pa.list_(pa.string()))),
    ("about", pa.struct([("lang", pa.string()), ("from", pa.struct([("url", pa.string())]))])),
    ("score", pa.struct([("x", pa.float64()), ("why", pa.string())])),
    ("embedding", pa.list_(pa.float32())),
])


def as_read(v):
    """JSON as the reader writes it: members that are null are left out, what must be escaped is by its number."""
    if v is None:
        return "null"
    if isinstance(v, str):
        return '"%s"' % "".join("\\u%04x" % ord(c) if ord(c) < 32 or c in '"\\' else c for c in v)
    if isinstance(v, list):
        return "[%s]" % ",".join(as_read(x) for x in v)
    return "{%s}" % ",".join('"%s":%s' % (k, as_read(x)) for k, x in v.items() if x is not None)


def make_records(folder):
    rows = [record(i) for i in range(40)]
    t = pa.Table.from_pylist(rows, RECORD)
    for version, codec, plain, item in [("1.0", "SNAPPY", False, True), ("2.0", "ZSTD", True, True), ("2.0", "NONE", False, False)]:
        name = "records-%s-%s.parquet" % (version[0], codec.lower())
        pq.write_table(t, os.path.join(folder, name), compression=codec, data_page_version=version, data_page_size=64,
                       row_group_size=15, write_batch_size=4, store_schema=False, write_statistics=False,
                       use_dictionary=not plain, use_compliant_nested_type=item)
    with open(os.path.join(folder, "records.jsonl"), "w", newline="") as f:
        for r in rows:
            f.write(as_read({k: v for k, v in r.items() if k not in ("id", "score", "embedding")}) + "\n")
    for name, kind, value in [("weight", pa.int64(), 0), ("map", pa.map_(pa.string(), pa.string()), [("a", "b")])]:
        t = pa.table({"messages": pa.array([[{"role": "user", name: value}]], pa.list_(pa.struct([("role", pa.string()), (name, kind)])))})
        pq.write_table(t, os.path.join(folder, "refused-%s.parquet" % name), store_schema=False, write_statistics=False)
    pq.write_table(pa.table({"id": pa.array([1, 2])}), os.path.join(folder, "numbers.parquet"), store_schema=False)
    make_empty(folder)


def make_empty(folder):
    """Tables without rows: a row group of none, no row group, one of none between others; and a column twice."""
    schema = pa.schema([("text", pa.string()), ("tags", pa.list_(pa.string()))])
    row = lambda text: pa.table({"text": [text], "tags": [[text]]}, schema=schema)
    for name, tables in [("group", [schema.empty_table()]), ("none", []), ("between", [row("a"), schema.empty_table(), row("b")])]:
        with pq.ParquetWriter(os.path.join(folder, "empty-%s.parquet" % name), schema, store_schema=False) as w:
            for t in tables:
                w.write_table(t)
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]),
                   os.path.join(folder, "twice.parquet"), store_schema=False)


def make_talk(folder):
    """The same conversations four ways: lines, a table of lists of structs, a table of JSON, a shard."""
    talk = [[m for k in range(1 + i % 3) for m in ({"role": "user", "content": "What is %d?\n\"é\"" % (i + k)},
                                                  {"role": "assistant", "content": "It is %d." % (i + k)})] for i in range(30)]
    lines = [json.dumps({"messages": m}, ensure_ascii=i % 2 == 0) for i, m in enumerate(talk)]
    with open(os.path.join(folder, "talk.jsonl"), "w", newline="") as f:
        f.write("".join(line + "\n" for line in lines))
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())]))
    for name, column in [("talk", pa.array(talk, kind)), ("talk-json", pa.array([json.dumps(m) for m in talk]))]:
        pq.write_table(pa.table({"id": pa.array(range(30)), "messages": column}), os.path.join(folder, name + ".parquet"),
                       compression="ZSTD", row_group_size=12, store_schema=False, write_statistics=False)
    with tarfile.open(os.path.join(folder, "talk.tar"), "w", bufsize=512) as t:
        for i, line in enumerate(lines):
            info = tarfile.TarInfo("%03d.json" % i)
            info.size = len(line.encode())
            t.addfile(info, io.BytesIO(line.encode()))


def check_parquet(tutti):
    n, bad = 0, 0
    big = table(5000)
    with tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        for codec, version, encoding, (page, group), crc in itertools.product(
                CODECS, ["1.0", "2.0"], ENCODINGS, [(1 << 20, 5000), (300, 1000)], [False, True]):
            write("x.parquet", big, codec, version, encoding, page, group, crc)
            for column in ["text", "tags", "message.content"]:
                r = subprocess.run([tutti, "data", "tokenize", "--tokenizer", "byte", "--out", "x", "x.parquet",
                                    "--column", column], capture_output=True, text=True)
                docs = wanted(column, 5000)
                ids = b"".join(d.encode() + b"\xff\xff" for d in docs)
                size = sum(len(d.encode()) + 1 for d in docs)
                body = np.fromfile("x.tok", dtype="<u2", offset=4096, count=size) if r.returncode == 0 else []
                got = b"".join(bytes([v]) if v < 256 else b"\xff\xff" for v in body)
                n += 1
                if got != ids:
                    bad += 1
                    print("differs:", codec, version, encoding, page, crc, column, r.stderr[-300:])
    print("%d tables and columns, %d differ" % (n, bad))
    return bad


class NotThere:
    """Stands in for object stores."""

    @staticmethod
    def is_enabled():
        return False


def megatron_module(wheel):
    """megatron/core/datasets/indexed_dataset.py of the wheel, with stand-ins for what it does not need here."""
    source = zipfile.ZipFile(wheel).read("megatron/core/datasets/indexed_dataset.py").decode()
    for name in ["torch", "torch.utils", "torch.utils.data"]:
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["torch"].Tensor = np.ndarray
    sys.modules["torch"].utils = sys.modules["torch.utils"]
    sys.modules["torch.utils"].data = sys.modules["torch.utils.data"]
    sys.modules["torch.utils.data"].Dataset = object
    for name in ["megatron", "megatron.core", "megatron.core.datasets"]:
        sys.modules.setdefault(name, types.ModuleType(name)).__path__ = []
    for name, members in {
            "megatron.core.datasets.object_storage_utils": ["ObjectStorageConfig", "S3Config", "S3Client", "MultiStorageClientFeature",
                                                            "cache_index_file", "dataset_exists", "get_index_cache_path",
                                                            "get_object_storage_access", "is_object_storage_path", "parse_s3_path"],
            "megatron.core.datasets.utils_s3": ["S3Config", "S3Client", "is_s3_path", "maybe_download_file", "object_exists",
                                                "parse_s3_path"],
            "megatron.core.msc_utils": ["MultiStorageClientFeature"],
            "megatron.core.utils": ["log_single_rank"]}.items():
        m = sys.modules.setdefault(name, types.ModuleType(name))
        for member in members:
            setattr(m, member, NotThere)
    m = types.ModuleType("indexed_dataset")
    sys.modules["indexed_dataset"] = m
    exec(compile(source, "indexed_dataset.py", "exec"), m.__dict__)
    return m


DOCUMENTS = [[1, 2, 3, 256], [256], [7, 8], [], [100] * 70 + [256]]  # 256 ends a text of the byte tokenizer


def make_megatron(folder, wheel):
    os.makedirs(folder, exist_ok=True)
    module = megatron_module(wheel)
    for dtype in [np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16]:
        prefix = os.path.join(folder, np.dtype(dtype).name)
        b = module.IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
        for d in DOCUMENTS:
            ids = [min(t, 127) for t in d] if np.dtype(dtype).itemsize == 1 else d
            half = len(ids) // 2
            b.add_document(np.array(ids), [half, len(ids) - half] if len(ids) > 4 else [len(ids)])
        b.finalize(prefix + ".idx")
    # What `tutti data export-megatron` writes of four texts: as preprocess_data.py --append-eod would.
    prefix = os.path.join(folder, "exported")
    b = module.IndexedDatasetBuilder(prefix + ".bin", dtype=module.DType.optimal_dtype(257))
    for d in ["one", "two\n", "é", "four"]:
        ids = list(d.encode()) + [256]
        b.add_document(np.array(ids), [len(ids)])
    b.finalize(prefix + ".idx")


def make_shards(folder):
    os.makedirs(folder, exist_ok=True)
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for name, form in formats.items():
        with tarfile.open(os.path.join(folder, name + ".tar"), "w", format=form, bufsize=512) as t:
            def put(member, data):
                info = tarfile.TarInfo(member)
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
            put("a/000.json", json.dumps({"text": "from json", "caption": "a caption"}).encode())
            put("a/000.txt", "from txt é".encode())
            put("a/000.cls", b"3")
            put("a/001.json", json.dumps({"text": "two", "caption": "another"}).encode())
            put("a/002.jsonl", b'{"text": "l1", "caption": "k1"}\n\n{"text": "l2", "caption": "k2"}\n')
            if name != "ustar":
                put("long/" + "n" * 180 + ".txt", b"of a long name")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--megatron")
    p.add_argument("--check")
    a = p.parse_args()
    if a.check:
        return check_parquet(os.path.abspath(a.check)) != 0
    make_parquet(os.path.join(HERE, "parquet"))
    make_records(os.path.join(HERE, "parquet"))
    make_shards(os.path.join(HERE, "shards"))
    make_talk(os.path.join(HERE, "shards"))
    if a.megatron:
        make_megatron(os.path.join(HERE, "megatron"), a.megatron)


if __name__ == "__main__":
    sys.exit(main())
