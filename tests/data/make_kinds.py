#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/kinds/ with the `tokenizers` library: small tokenizers of every kind, configured as published models are, and what
the library makes of the documents of hard_documents.h.

    pip install tokenizers sentencepiece xxhash
    python3 tests/data/make_kinds.py build/tests/data_tests TEXT... [-- NAME...]

NAME.json is the tokenizer. NAME.results: for every 250 documents the digests (XXH64) of ids and of decoded texts; then lines "i id id ..."
for single documents. Then tutti's ids of all documents are compared one by one, and what differs is printed.
"""
import collections
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
import xxhash
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kinds")
CHUNK, EXPLICIT = 250, 60
META = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
             r"\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def special(*names, **k):
    return [AddedToken(n, special=True, normalized=False, **k) for n in names]


def byte_level(**k):
    return pre_tokenizers.ByteLevel(**dict(dict(add_prefix_space=False), **k))


def charsmap(rules):
    """A small precompiled charsmap, compiled by SentencePiece from rules: {text: replacement}."""
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/rules.tsv", "w") as f:
            for a, b in rules.items():
                f.write("%s\t%s\n" % (" ".join("%04X" % ord(c) for c in a), " ".join("%04X" % ord(c) for c in b)))
        with open(d + "/text.txt", "w") as f:
            f.write("the quick brown fox jumps over the lazy dog\n" * 50)
        sentencepiece.SentencePieceTrainer.train(input=d + "/text.txt", model_prefix=d + "/m", vocab_size=40, hard_vocab_limit=False,
                                                 normalization_rule_tsv=d + "/rules.tsv", minloglevel=2)
        data = open(d + "/m.model", "rb").read()
    # normalizer_spec (field 3) { precompiled_charsmap (field 2) }: walk the protobuf.
    def fields(b):
        i = 0
        while i < len(b):
            tag, i = varint(b, i)
            if tag & 7 == 0:
                v, i = varint(b, i)
            elif tag & 7 == 2:
                n, i = varint(b, i)
                v, i = b[i:i + n], i + n
            elif tag & 7 == 5:
                v, i = b[i:i + 4], i + 4
            else:
                v, i = b[i:i + 8], i + 8
            yield tag >> 3, v

    def varint(b, i):
        x = s = 0
        while True:
            x |= (b[i] & 127) << s
            s += 7
            i += 1
            if b[i - 1] < 128:
                return x, i
    return next(v for f, v in fields(next(v for f, v in fields(data) if f == 3)) if f == 2)


RULES = {"\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "\r\n": " ", "\u200b": "", "\ufb01": "fi", "\ufb03": "ffi", "\u2460": "1", "\u2461": "2", "\u00bd": "1\u20442",
         "e\u0301": "\u00e9", "x\u0301": "X", "\uff21": "A", "\uff22": "B", "\uff23": "C", "\uff76\uff9e": "\u30ac", "\uff76": "\u30ab", "\u2167": "VIII", "\u2026": "...", "\u3231": "(\u682a)",
         "\u338f": "kg", "\u212b": "\u00c5", "\u2126": "\u03a9", "\u00ad": "", "\ufeff": "", "\u1112\u1161\u11ab": "\ud55c", "\u0041\u030a": "\u00c5", "\u200d": " ", "\u0301": "'", "\U0001d49c": "A"}


def sp_bpe(texts, vocab, newlines=False):
    """SentencePiece-style BPE: <unk> <s> </s>, 256 byte tokens, pieces with the meta symbol."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", META)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)],
                                                     limit_alphabet=260, show_progress=False))
    d = json.loads(t.to_str())
    m = d["model"]
    merges, voc = [tuple(x) for x in m["merges"]], m["vocab"]

    def add(left, right):
        if left + right not in voc:
            voc[left + right] = len(voc)
        if (left, right) not in merges:
            merges.append((left, right))
    for a in (META, "\n") if newlines else (META,):
        if a not in voc:
            voc[a] = len(voc)
        for k in (1, 2, 4):
            add(a * k, a * k)
        add(a * 2, a)
    return voc, merges


def bpe(voc, merges, **k):
    return models.BPE(vocab=voc, merges=merges, **k)


def sp_decoder(strip=True):
    steps = [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2(texts):
    t = Tokenizer(bpe(*sp_bpe(texts, 900), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend(META), normalizers.Replace(" ", META)])
    t.decoder = sp_decoder()
    t.add_special_tokens(special("<unk>", "<s>", "</s>"))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def mistral(texts):
    t = Tokenizer(bpe(*sp_bpe(texts, 800), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = sp_decoder()
    t.add_special_tokens(special("<unk>", "<s>", "</s>"))
    t.add_tokens([AddedToken("<extra>", normalized=True, rstrip=True)])
    return t


def gemma(texts):
    t = Tokenizer(bpe(*sp_bpe(texts, 1000, newlines=True), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", META)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = sp_decoder(strip=False)
    t.add_special_tokens(special("<pad>", "<s>", "</s>"))
    return t


def sp_unknown(texts):
    """No fallback, unknown characters not fused, and a word stays whole when it is a token."""
    voc, merges = sp_bpe(texts, 600)
    t = Tokenizer(bpe(voc, merges, unk_token="<unk>", fuse_unk=False, ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(special("<unk>", "<s>"))
    return t


def part_fallback(texts):
    """Some byte tokens only: unknown characters and bytes in turn; cut at digits."""
    voc, merges = sp_bpe(texts, 700)
    voc = {k: v for k, v in voc.items() if not (k.startswith("<0xF") or k == "<0x99>")}
    voc = {k: i for i, k in enumerate(voc)}
    t = Tokenizer(bpe(voc, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Strip(left=True, right=True), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(" ", META)])
    t.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    t.decoder = sp_decoder(strip=False)
    return t


def unigram(texts, vocab, normalizer, pre, specials=("<unk>",), fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre
    texts = [normalizer.normalize_str(x) for x in texts]  # every character becomes a token: the 250 most frequent ones
    common = {c for c, _ in collections.Counter("".join(texts)).most_common(250)}
    texts = ["".join(c for c in x if c in common) for x in texts]
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=vocab, special_tokens=list(specials), unk_token="<unk>", show_progress=False))
    m = json.loads(t.to_str())["model"]
    voc = [tuple(x) for x in m["vocab"]]
    if fallback:
        voc += [("<0x%02X>" % i, -20.0 - i / 256) for i in range(256)]
    t.model = models.Unigram(voc, m["unk_id"], fallback)
    return t


def t5(texts):
    norm = normalizers.Sequence([normalizers.Precompiled(charsmap(RULES)), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), META)])
    t = unigram(texts, 700, norm, pre_tokenizers.Metaspace(prepend_scheme="always"), ("<pad>", "</s>", "<unk>"))
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(special("<pad>", "</s>", "<unk>"))
    t.add_special_tokens(special("<extra>", lstrip=True))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t


def albert(texts):
    norm = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                 normalizers.Lowercase(), normalizers.Precompiled(charsmap(RULES))])
    t = unigram(texts, 600, norm, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), ("<pad>", "<unk>", "[CLS]", "[SEP]"))
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(special("<pad>", "[CLS]", "[SEP]"))
    t.add_tokens([AddedToken("Extra", normalized=True), AddedToken("[MASK]", lstrip=True, normalized=False)])
    return t


def unigram_bytes(texts):
    t = unigram(texts, 600, normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="first"), ("<unk>", "<s>"), fallback=True)
    t.decoder = sp_decoder()
    t.add_special_tokens(special("<unk>", "<s>"))
    return t


def unigram_whole(texts):
    """No pre_tokenizer: a document is one piece."""
    t = unigram(texts, 500, normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(" ", META)]),
                pre_tokenizers.Metaspace(prepend_scheme="never"), ("<unk>",))
    t.pre_tokenizer = pre_tokenizers.Sequence([])
    t.decoder = decoders.Metaspace(prepend_scheme="never")
    return t


def bert(texts, **k):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(**k), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=250, show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def word_level(texts, pre, normalizer=None, vocab=250, decoder=None):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=vocab, special_tokens=["<unk>"], show_progress=False))
    if decoder:
        t.decoder = decoder
    return t


def bytes_bpe(texts, pre, vocab=600, normalizer=None, alphabet=True, specials=("<|endoftext|>",), **k):
    t = Tokenizer(models.BPE(**k))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    affixes = {a: k[a] for a in ("end_of_word_suffix", "continuing_subword_prefix") if k.get(a)}
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(specials), show_progress=False, **affixes,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [], limit_alphabet=1000 if alphabet else 200))
    return t


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Split(pattern if isinstance(pattern, str) else Regex(pattern[0]), behavior, invert)


def qwen(texts):
    t = bytes_bpe(texts, pre_tokenizers.Sequence([split([QWEN], "isolated"), byte_level(use_regex=False)]), normalizer=normalizers.NFC())
    t.add_special_tokens(special("<|im_start|>"))
    t.add_tokens([AddedToken("<mask>", normalized=True), AddedToken("\u1112\u1161\u11ab", normalized=True)])
    return t


def deepseek(texts):
    steps = [split(["[\r\n]"], "isolated"), split([r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba]+"], "isolated"), split([r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"], "isolated"),
             split([r"\s+$"], "isolated"), split(["[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"], "isolated"), pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=False)]
    return bytes_bpe(texts, pre_tokenizers.Sequence(steps), normalizer=normalizers.Sequence([]))


def deepseek3(texts):
    steps = [split([r"\p{N}{1,3}"], "isolated"), split(["[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"], "isolated"), split([DEEPSEEK3], "isolated"), byte_level(use_regex=False)]
    return bytes_bpe(texts, pre_tokenizers.Sequence(steps))


def llama3(texts):
    t = bytes_bpe(texts, pre_tokenizers.Sequence([split([LLAMA3], "isolated"), byte_level(use_regex=False)]), ignore_merges=True)
    return t


def roberta(texts):
    t = bytes_bpe(texts, byte_level(add_prefix_space=True), specials=("<s>", "</s>"))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return t


def clip(texts):
    norm = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t = bytes_bpe(texts, pre_tokenizers.Sequence([split([CLIP], "removed", True), byte_level()]), normalizer=norm, vocab=900, unk_token="<|endoftext|>",
                  end_of_word_suffix="</w>", continuing_subword_prefix="")
    return t


def suffix(texts):
    t = bytes_bpe(texts, pre_tokenizers.BertPreTokenizer(), vocab=700, alphabet=False, unk_token="<unk>", end_of_word_suffix="</w>", specials=("<unk>",),
                  normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]))
    t.decoder = decoders.BPEDecoder()
    return t


def prefix(texts):
    t = bytes_bpe(texts, pre_tokenizers.Whitespace(), vocab=700, alphabet=False, unk_token="[UNK]", continuing_subword_prefix="##", specials=("[UNK]",))
    t.decoder = decoders.WordPiece(cleanup=False)
    return t


def few_bytes(texts):
    """ByteLevel in front of a vocabulary that lacks bytes; a prefix before every piece."""
    t = bytes_bpe(texts, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), byte_level(add_prefix_space=True)]), alphabet=False, vocab=500, unk_token="<unk>", specials=("<unk>",))
    return t


def normalized_bytes(texts):
    t = bytes_bpe(texts, split(["\u0120?[a-z]+|."], "isolated"), normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.ByteLevel()]), vocab=500)
    t.add_tokens([AddedToken("caf\u00e9", normalized=True), AddedToken("<extra>", normalized=False, single_word=True)])
    return t


def added(texts):
    """Added tokens of every kind around a normalizer."""
    t = Tokenizer(bpe(*sp_bpe(texts, 500), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", META), normalizers.Prepend(META)])
    t.decoder = sp_decoder()
    t.add_special_tokens(special("<s>", "</s>"))
    t.add_tokens([AddedToken("Extra", normalized=True, single_word=True), AddedToken("<extra>", normalized=True), AddedToken("THE", normalized=True), AddedToken("int", normalized=False, single_word=True),
                  AddedToken("<pad>", normalized=False, lstrip=True, rstrip=True), AddedToken("\u4f60\u597d", normalized=False), AddedToken("[MASK]", normalized=True, lstrip=True),
                  AddedToken("\u00dc", normalized=True), AddedToken("low", normalized=False, rstrip=True)])
    return t


def first(texts, normalizer):
    """The symbol is put where the document begins, unless the normalizer dropped its beginning."""
    return unigram(texts, 500, normalizer, pre_tokenizers.Metaspace(prepend_scheme="first"), ("<unk>", "<s>"), fallback=True)


def first_each(texts, normalizer):
    """Every character a piece: the symbol is put before each that came from the document's first one."""
    each = pre_tokenizers.Sequence([split(["(?m:.)"], "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first", split=False)])
    t = unigram(texts, 400, normalizer, each, ("<unk>", "<s>"), fallback=True)
    t.add_tokens([AddedToken("k", normalized=True), AddedToken("A", normalized=True)])
    return t


def ctc(texts):
    return word_level(texts, split(["(?m:.)"], "isolated"), vocab=80, decoder=decoders.CTC("<unk>", "e", True))


P, W = pre_tokenizers, [r"\w+"]
KINDS = {
    # name: (maker, bytes kept, nothing lost)
    "llama2": (llama2, True, True), "mistral": (mistral, True, False), "gemma": (gemma, True, True), "sp_unknown": (sp_unknown, False, False),
    "part_fallback": (part_fallback, False, False), "t5": (t5, False, False), "albert": (albert, False, False), "unigram_bytes": (unigram_bytes, True, False),
    "unigram_whole": (unigram_whole, False, False), "bert": (lambda x: bert(x), False, False),
    "bert_cased": (lambda x: bert(x, lowercase=False, strip_accents=None), False, False),
    "bert_chinese": (lambda x: bert(x, clean_text=False, strip_accents=False), False, False),
    "qwen": (qwen, True, False), "deepseek": (deepseek, True, True), "deepseek3": (deepseek3, True, True), "llama3": (llama3, True, True),
    "roberta": (roberta, True, False), "clip": (clip, False, False), "suffix": (suffix, False, False), "prefix": (prefix, False, False),
    "few_bytes": (few_bytes, False, False), "normalized_bytes": (normalized_bytes, False, False), "added": (added, True, False), "ctc": (ctc, False, False),
    "words": (lambda x: word_level(x, P.Whitespace(), normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()])), False, False),
    "previous": (lambda x: word_level(x, split(W, "merged_with_previous"), normalizers.Nmt()), False, False),
    "next": (lambda x: word_level(x, split(W, "merged_with_next", True), normalizers.Strip()), False, False),
    "contiguous": (lambda x: word_level(x, split([r"\p{L}|\d"], "contiguous"), normalizers.NFD()), False, False),
    "removed": (lambda x: word_level(x, P.Sequence([split(" ", "removed"), P.Punctuation("contiguous"), P.Digits()]), normalizers.NFKC()), False, False),
    "neighbours": (lambda x: word_level(x, split([r"\w| "], "merged_with_previous")), False, False),
    "neighbours_next": (lambda x: word_level(x, split([r"\w| "], "merged_with_next")), False, False),
    "first_nmt": (lambda x: first(x, normalizers.Nmt()), True, False), "first_strip": (lambda x: first(x, normalizers.Strip()), True, False),
    "first_replace": (lambda x: first(x, normalizers.Sequence([normalizers.Replace("the", "T"), normalizers.Replace(Regex(r"\s\s+"), "_"), normalizers.Replace("a", "")])),
                      True, False),
    "first_forms": (lambda x: first_each(x, normalizers.Sequence([normalizers.NFKD(), normalizers.NFC(), normalizers.Replace("the", "T")])), True, False),
    "first_map": (lambda x: first_each(x, normalizers.Sequence([normalizers.Precompiled(charsmap(RULES)), normalizers.Prepend("_")])), True, False),
    "delimiter": (lambda x: word_level(x, P.Sequence([P.CharDelimiterSplit("e"), P.Punctuation("merged_with_next"), P.Metaspace("_", "first")])), False, False),
}


def read_documents(program):
    data, docs, at = subprocess.run([program, "test_tokenizer_kinds", "documents"], check=True, capture_output=True).stdout, [], 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        docs.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return docs


def is_valid(d):
    try:
        d.decode()
        return True
    except UnicodeDecodeError:
        return False


def ordered(text):
    """Added tokens' ids go on after the model's vocabulary, in the order of the list."""
    return json.loads(text)


def main():
    args = sys.argv[1:]
    names = args[args.index("--") + 1:] if "--" in args else list(KINDS)
    args = args[:args.index("--")] if "--" in args else args
    program, docs = args[0], read_documents(args[0])
    corpus = [d.decode() for d in docs[::3] if is_valid(d)]
    for path in args[1:]:
        corpus += open(path, encoding="utf-8").read().split("\n")
    random.seed(1)
    os.makedirs(HERE, exist_ok=True)
    for name in names:
        maker, keeps, _ = KINDS[name]
        path = os.path.join(HERE, name + ".json")
        if not os.environ.get("KEEP") or not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as f:
                f.write(json.dumps(ordered(maker(corpus).to_str()), ensure_ascii=False, separators=(",", ":")))
        t = Tokenizer.from_str(open(path, encoding="utf-8").read())
        ids, texts, rows, explicit = [], [], [], []
        used = [i for i, d in enumerate(docs) if not (keeps and i % 8 == 7)]
        encoded = t.encode_batch([docs[i].decode("utf-8", "replace") for i in used], add_special_tokens=False)
        of = {i: e.ids for i, e in zip(used, encoded)}
        for c in range(0, len(docs), CHUNK):
            h, g = xxhash.xxh64(), xxhash.xxh64()
            for i in range(c, c + CHUNK):
                if i in of:
                    h.update(struct.pack("<%di" % (len(of[i]) + 1), *of[i], -1))
                    g.update((t.decode(of[i], skip_special_tokens=False) if of[i] and b"<0x" not in docs[i] else "").encode() + b"\0")
            rows.append("%s %s" % (h.hexdigest(), g.hexdigest()))
        for i in used[:EXPLICIT]:
            explicit.append(" ".join(str(x) for x in [i] + of[i]))
        with open(os.path.join(HERE, name + ".results"), "w") as f:
            f.write("\n".join(rows + explicit) + "\n")
        mine = subprocess.run([program, "test_tokenizer_kinds", "encode", path], capture_output=True)
        if mine.returncode:
            print("%-16s refused: %s" % (name, mine.stderr.decode().strip()))
            continue
        lines = mine.stdout.decode().split("\n")
        bad = [i for i in used if [int(x) for x in lines[i].split()] != of[i]]
        unk = sum(of[i].count(0) for i in used)
        print("%-16s %d documents, %d ids (%d of id 0), %d differ" % (name, len(used), sum(len(x) for x in of.values()), unk, len(bad)), flush=True)
        for i in bad[:3]:
            print("   %d %r\n      wanted %s\n      got    %s" % (i, docs[i].decode("utf-8", "replace")[:200], of[i][:40], lines[i][:160]))
            if os.environ.get("PIECES"):
                print("      ", t.encode(docs[i].decode("utf-8", "replace"), add_special_tokens=False).tokens[:40])
    with open(os.path.join(HERE, "list.inc"), "w") as f:
        f.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* list.inc: made by make_kinds.py */\n")
        f.write("".join('{"%s", %s, %s},\n' % (n, str(k).lower(), str(l).lower()) for n, (_, k, l) in KINDS.items()))


main()
