#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/fixtures/*.json with the `tokenizers` library (pip install tokenizers), the reference.

    python3 make_fixtures.py TEXT...

Each NAME.json is a small tokenizer; NAME.cases.json lists [text, ids] that the reference gives for it. The tests
only read the results: they need neither Python nor the library.
"""
import json
import os
import re
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "  a  b  ", "Hello, world!", "hello world", " leading", "trailing   ",
    "I'm we've you'll he'd it's they're don't", "I'M WE'VE YOU'LL HE'D IT'S", "'s't'x ''ll 'Ss '\u017f",
    "It\u2019s \u201cquoted\u201d \u2014 dash\u2026", "1 12 123 1234 12345 3.14159 1,000,000 0x1F 2nd",
    "\u00bd \u00b2 \u2167 \u0663\u0664 \u4e09", "tab\tseparated\t\tvalues", "line\nbreak\n\nparagraph\n\n\n",
    "crlf\r\nline\r\n\r\nend\r", "  \n  indented\n\tif (x) {\n\t\treturn;\n\t}\n", "a\n b\n  c\n   d", "   \n", "\n   ", " \r\n \t",
    "na\u00efve caf\u00e9 \u00fcber stra\u00dfe \u0130stanbul", "e\u0301 combining a\u030a\u0327",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155 \uc138\uc0c1",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "\U0001d49c\U0001d4b7", "\U0010ffff\U00010000",
    "\u00a0nbsp\u00a0\u00a0x\u2003em\u3000ideo\u2028line\u2029para\u0085nel\u1680ogham\u200bzero\u180emong\ufeffbom",
    "\u2000 \u2001\u2009 x", "\x01\x02\x1b[0m\x7f\x1c\x1d\x1e\x1f", "C:\\path\\file.txt #include <stdio.h> /* x */ && || != ->",
    "http://example.org/a?b=c&d=%20#e foo_bar fooBar FOO_BAR __init__", "!!! ??? ... --- === ***\n***", "(a)[b]{c}<d>\"e\"'f'`g`",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababababababababababababababababababababababababababababababababababab the" * 3,
    "thetheirthemselvestherethereforethesethenthencethereby" * 4, "." * 200, " " * 100 + "x", "\n" * 70, "-" * 65 + " " + "=" * 49,
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext", "<|endof<|endoftext|>", "<<|endoftext|>>",
    "<|begin_of_text|>hi<|end_of_text|>", "<|begin_of_text|> hi <|end_of_text|> there", "x<mask>y", "x  <mask>  y", " <mask> <mask>\n<mask>\u3000z",
    "a <pad>  b", "<pad>\n\n", "\u00a0<mask>", "<mask", "keep   three    four  two", "def f():\n    return 1\n        deeper",
]


def cases(t, texts):
    return [[x, t.encode(x, add_special_tokens=False).ids] for x in texts]


def write(name, t, change=None, texts=TEXTS):
    d = json.loads(t.to_str())
    if change:
        change(d)
    text = json.dumps(d, ensure_ascii=False, separators=(",", ":"))
    reference = Tokenizer.from_str(text)
    with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
        f.write(text)
    with open(os.path.join(HERE, name + ".cases.json"), "w", encoding="utf-8") as f:
        rows = (json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases(reference, texts))
        f.write("[\n" + ",\n".join(rows) + "\n]\n")


def train(pre, vocab, files, special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train(files, trainer)
    return t


def merges_as_text(d):
    d["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in d["model"]["merges"]]


def whole_words(d):
    d["model"]["ignore_merges"] = True
    # Words that no merge reaches: only ignore_merges finds them.
    next_id = max(d["model"]["vocab"].values()) + 1
    for i, w in enumerate(["\u0120zebra", "Qwerty", "\u0120\u0120\u0120\u010a"]):
        d["model"]["vocab"][w] = next_id + i
    for i, s in enumerate(["<|begin_of_text|>", "<|end_of_text|>"]):
        d["added_tokens"].append({"id": next_id + 3 + i, "content": s, "single_word": False, "lstrip": False,
                                  "rstrip": False, "normalized": False, "special": True})
    d["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [next_id + 3],
                                                  "tokens": ["<|begin_of_text|>"]}}}]}


def training_text():
    """Some kilobytes with ties, repeats, runs, digits, other scripts and line ends."""
    words = ("the then there these other mother another banana bananas aaaa aaaaaaa low lower lowest new newer newest wide "
             "widest na\u00efve \u043c\u0438\u0440 \u4e16\u754c 1234567 12 3.14 don't we're I'll <|endoftext|> ((x)) --- \U0001f600").split(" ")
    state, text = 1, ""
    while len(text) < 5000:
        state = (state * 1103515245 + 12345) % (1 << 31)
        text += words[(state >> 8) % len(words)] + (" ", " ", " ", " ", "\n", "  ", "\r\n", ", ")[(state >> 16) % 8]
    return text


def write_trained(text):
    with open(os.path.join(HERE, "train.txt"), "w", encoding="utf-8", newline="") as f:
        f.write(text)
    result = {}
    for style, pre in (("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False)),
                       ("llama3", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))):
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre
        # The reference does not cut added tokens out of the text it trains on.
        t.train_from_iterator(text.split("<|endoftext|>"), trainers.BpeTrainer(
            vocab_size=340, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        result[style] = [m if isinstance(m, str) else " ".join(m) for m in json.loads(t.to_str())["model"]["merges"]]
    with open(os.path.join(HERE, "train.merges.json"), "w", encoding="utf-8") as f:
        json.dump(result, f, ensure_ascii=False, indent=0)


# Texts around added tokens: both searches, overlaps, white space taken along and shared, words. Also as random mixtures.
ADDED_BITS = ["<a", "<ab", "<abc>", "bc>", "c><a", "x", " ", "  ", "\n", "\u3000", "_", "\u0301", "9", "\u200d", ".", "one", "<one>", "\t", "<l>", "<r>", "<lr>",
              "<w>", "\u00e9", "\u4e16", "\u24b6", "stone", "<n>", " <n", "n>", "\u0020\u0020\u0020\u0020"]


def added_texts():
    state, texts = 9, []
    for _ in range(400):
        text = ""
        for _ in range(1 + len(texts) % 12):
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            text += ADDED_BITS[(state >> 33) % len(ADDED_BITS)]
        texts.append(text)
    return texts


def write_added(files):
    """Overlapping tokens of both kinds; DeepSeek-V3's file has such a pair."""
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 300, files, ["<|endoftext|>"])
    t.add_tokens([AddedToken("<abc>", normalized=True), AddedToken("<ab", normalized=False), AddedToken("bc>", normalized=True),
                  AddedToken("c><a", normalized=False), AddedToken("one", single_word=True, normalized=True),
                  AddedToken("<w>", single_word=True, normalized=False, lstrip=True), AddedToken("<l>", lstrip=True, normalized=False),
                  AddedToken("<r>", rstrip=True, normalized=True), AddedToken("<lr>", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("  ", normalized=True), AddedToken("\n", normalized=False, rstrip=True), AddedToken("<n>", normalized=True, lstrip=True),
                  AddedToken("<one>", normalized=False)])
    write("added", t, nul_key, texts=TEXTS + added_texts())


def nul_key(d):
    """Legal JSON, and no text reaches it. The ids of added tokens go on after the vocabulary, in the order of the list."""
    for key in ("\0", "a\0b"):
        d["model"]["vocab"][key] = len(d["model"]["vocab"])
    n = len(d["model"]["vocab"])
    for i, t in enumerate(t for t in d["added_tokens"] if t["content"] not in d["model"]["vocab"]):
        t["id"] = n + i


def write_cutters(runs):
    """Pre-tokenizers alone: every piece is a word. runs: of scripts (src/text/script_runs.c), whose ends are tried."""
    edges = [chr(c) for lo, hi, _ in runs for c in (lo, hi, hi + 1) if not 0xD800 <= c < 0xE000 and c < 0x110000]
    texts = TEXTS + ["".join(edges[i:i + 40]) for i in range(0, len(edges), 40)] + ["  \u3042\u30a2\u4e00\u30fc \u0431 a1\u0301", " 1 a"]
    for name, pre in [("fixed", pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.FixedLength(3)])),
                      ("fixed_first", pre_tokenizers.FixedLength(4)), ("scripts", pre_tokenizers.UnicodeScripts()),
                      ("scripts_words", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("[aeiou]"), "merged_with_next"),
                                                                 pre_tokenizers.UnicodeScripts()]))]:
        words = {"[UNK]": 0}
        for x in texts:
            for w, _ in pre.pre_tokenize_str(x):
                words.setdefault(w, len(words))
        t = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
        t.pre_tokenizer = pre
        t.add_special_tokens(["</s>"])
        write(name, t, texts=texts)


def main():
    write_trained(training_text())
    files = sys.argv[1:]
    byte_level = lambda **k: pre_tokenizers.ByteLevel(**k)
    gpt2 = train(byte_level(add_prefix_space=False), 1100, files, ["<|endoftext|>"])
    write("gpt2", gpt2, merges_as_text)
    llama3 = train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                            byte_level(add_prefix_space=False, use_regex=False)]), 900, files, [])
    write("llama3", llama3, whole_words)
    prefix = train(byte_level(add_prefix_space=True), 320, files, ["<|endoftext|>"])
    prefix.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<pad>", rstrip=True, normalized=False)])
    write("prefix", prefix)
    digits = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                            byte_level(add_prefix_space=False)]), 400, files, ["<|endoftext|>"])
    digits.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 6)])
    # U+11DE0 and U+16FF4 are numbers for Rust, whose tables are newer than those of the regular expressions.
    write("digits", digits, texts=TEXTS + ["a\U00011de1\U00011de2b", "\U00016ff4x", "\u00bd\u2167\u0663 \U0001d7ce"])
    literal = train(pre_tokenizers.Sequence([pre_tokenizers.Split("a.", "isolated"), pre_tokenizers.Split("\n", "isolated"),
                                             pre_tokenizers.Split("\u3000", "isolated"),
                                             byte_level(add_prefix_space=False, use_regex=False)]), 300, files, ["</s>"])
    write("literal", literal)
    write_added(files)
    with open(os.path.join(HERE, "../../../src/text/script_runs.c")) as f:
        write_cutters([[int(x) for x in r.split(",")] for r in re.findall(r"\{(\d+,\d+,\d+)\}", f.read())])


main()
