#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes src/curate/language_table.c, the language model that comes with tutti, and says how well it does by length of
text on what was held out (all.jsonl with its labels in held-out.tsv, one in twenty).

The text is what Chromium says to its users, in the languages of Debian's package chromium-l10n (a .pak file each), whose
licence, BSD-3-Clause, allows that. Needs: apt-get, dpkg-deb, a built tutti.

    scripts/make_languages.py build/tutti FOLDER    (a folder for what is fetched and made; goes on with what is there)
"""
import collections
import glob
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys

N_GRAMS = 400  # of each language
MERGED = {"en-GB": "en", "en-US": "en", "es-419": "es", "pt-BR": "pt", "pt-PT": "pt", "zh-CN": "zh", "zh-TW": "zh", "fil": "tl"}


def strings(path):
    """The texts of a .pak file of version 5: u32 version, u8 encoding, three bytes, u16 resources, u16 aliases; then
    (u16 id, u32 offset) of each, and one more that ends the last."""
    data = open(path, "rb").read()
    version, encoding = struct.unpack_from("<IB", data)
    assert version == 5 and encoding == 1, path
    n, _ = struct.unpack_from("<HH", data, 8)
    for i in range(n):
        _, begin = struct.unpack_from("<HI", data, 12 + 6 * i)
        _, end = struct.unpack_from("<HI", data, 12 + 6 * (i + 1))
        yield data[begin:end].decode("utf-8", "replace")


def clean(text):
    text = re.sub(r"<[^>]*>|\{[^{}]*\}|\$\d|\$\{.*?\}|&[a-z]+;|https?://\S+", " ", text)
    text = re.sub(r"\b(Google|Chrom\w+|Android|Linux|Windows|ChromeOS|Mac|Bluetooth|Wi-Fi|USB|PIN|URL|Play|Drive)\b", " ", text)
    return re.sub(r"\s+", " ", text).strip()


def texts(folder):
    by_label = collections.defaultdict(dict)
    for path in sorted(glob.glob(os.path.join(folder, "x/usr/lib/chromium/locales/*.pak"))):
        name = os.path.basename(path)[:-4]
        if "_" in name:  # the same with another grammatical gender
            continue
        for text in strings(path):
            text = clean(text)
            if len(text) >= 20:
                by_label[MERGED.get(name, name)][text] = True
    english = set(by_label["en"])
    for label, found in by_label.items():
        yield label, [t for t in found if label == "en" or t not in english]  # what nobody translated


def held_out(text):
    return hashlib.sha256(text.encode()).digest()[0] < 13  # one in twenty


def main():
    tutti, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    if not glob.glob(os.path.join(folder, "x/usr")):
        subprocess.run(["apt-get", "download", "chromium-l10n"], cwd=folder, check=True)
        package = glob.glob(os.path.join(folder, "chromium-l10n_*.deb"))[0]
        subprocess.run(["dpkg-deb", "-x", package, os.path.join(folder, "x")], check=True)
    labels = []
    every = open(os.path.join(folder, "held-out.tsv"), "w")
    for label, found in sorted(texts(folder)):
        path = os.path.join(folder, label + ".txt")
        with open(path, "w") as out:
            out.write("\n".join(t for t in found if not held_out(t)) + "\n")
        out_of_it = sorted((t for t in found if held_out(t)), key=lambda t: hashlib.sha256(t.encode()).hexdigest())
        for t in out_of_it:
            every.write(f"{label}\t{t}\n")
        labels += ["--label", f"{label}={path}"]
    every.close()
    n = os.environ.get("N_GRAMS", str(N_GRAMS))
    model = os.path.join(folder, "languages.model")
    subprocess.run([tutti, "data", "train-language", *labels, "--out", model, "--n-grams", n], check=True)
    payload = open(model, "rb").read()[24:-8]
    padded = payload + bytes(-len(payload) % 4)
    words = struct.unpack(f"<{len(padded) // 4}I", padded)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    with open(os.path.join(root, "src/curate/language_table.c"), "w") as out:
        out.write("/* SPDX-License-Identifier: Apache-2.0 */\n")
        out.write("/* language_table.c: made by scripts/make_languages.py of the texts of Debian's package chromium-l10n\n")
        out.write(" * (BSD-3-Clause, The Chromium Authors): counts of n-grams, no text. Not to be edited. */\n")
        out.write('#include "curate/language_table.h"\n\n')
        out.write(f"const int language_table_bytes = {len(payload)}, language_table_words = {len(words)};\n")
        out.write("/* clang-format off */\nconst uint32_t language_table[] = {\n")
        for i in range(0, len(words), 10):
            out.write(" ".join(f"0x{w:08x}," for w in words[i : i + 10]) + "\n")
        out.write("};\n")
    measure(tutti, folder, model)


def measure(tutti, folder, model):
    """Of texts by length in characters: how many `tutti data clean` names rightly."""
    asked = [line.rstrip("\n").split("\t", 1) for line in open(os.path.join(folder, "held-out.tsv"))]
    with open(os.path.join(folder, "all.jsonl"), "w") as out:
        for _, text in asked:
            out.write(json.dumps({"text": text}) + "\n")
    rules, out = os.path.join(folder, "rules.yaml"), os.path.join(folder, "out")
    with open(rules, "w") as f:
        f.write(f"rules:\n  - language: {{model: {model}, min_probability: 0}}\n")
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([tutti, "data", "clean", rules, os.path.join(folder, "all.jsonl"), "--out", out, "--plain"], check=True)
    told = {}
    for line in open(os.path.join(out, "part-00000.jsonl")):
        record = json.loads(line)
        told[record["document"]] = record["language"]
    for least, most in (20, 40), (40, 80), (80, 160), (160, 10**9):
        these = [(i, label) for i, (label, text) in enumerate(asked) if least <= len(text) < most]
        right = sum(told.get(i) == label for i, label in these)
        print(f"{least} characters and more: {right} of {len(these)} ({100 * right / len(these):.2f} %)")


main()
