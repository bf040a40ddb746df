#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers puts before a text, and which token it calls bos: fixtures/begins.cases.json, by the library itself.

Every case is a folder with a small tokenizer.json and a tokenizer_config.json (null: none) of these words. Written with
transformers 5.24 and tokenizers 0.23.3:

    python3 tests/data/make_begins.py
"""
import itertools
import json
import os
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers

WORDS = ["[UNK]", "<s>", "</s>", "<bos>", "<eos>", "<|endoftext|>", "[gMASK]", "[CLS]", "[SEP]", "a", "b"]
IDS = {w: i for i, w in enumerate(WORDS)}


def token(word):
    return {"SpecialToken": {"id": word, "type_id": 0}}


def template(before, behind=()):
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = [token(w) for w in before] + [text] + [token(w) for w in behind]
    return {"type": "TemplateProcessing", "single": single, "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {w: {"id": w, "ids": [IDS[w]], "tokens": [w]} for w in {*before, *behind}}}


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
PROCESSORS = [
    None,
    BYTES,
    template([]),
    template(["<bos>"]),
    template(["<s>"], ["</s>"]),
    template([], ["</s>"]),
    template(["[gMASK]", "<bos>"]),
    {"type": "Sequence", "processors": [BYTES, template(["<bos>"])]},
    {"type": "BertProcessing", "sep": ["[SEP]", IDS["[SEP]"]], "cls": ["[CLS]", IDS["[CLS]"]]},
    {"type": "RobertaProcessing", "sep": ["</s>", IDS["</s>"]], "cls": ["<s>", IDS["<s>"]], "trim_offsets": True,
     "add_prefix_space": False},
]
CONFIGS = [{"tokenizer_class": c} for c in ("PreTrainedTokenizerFast", "TokenizersBackend")]
CONFIGS += [{"tokenizer_class": c, "bos_token": b} for c, b in itertools.product(
    ("PreTrainedTokenizerFast", "TokenizersBackend"), ("<bos>", None, {"__type": "AddedToken", "content": "<s>"}))]
CONFIGS += [{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "add_bos_token": a} for a in (True, False)]
CONFIGS += [{"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": a} for a in (True, False)]


def tokenizer(processor):
    added = [{"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for w, i in IDS.items() if len(w) > 1]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": processor, "decoder": None,
            "model": {"type": "WordLevel", "vocab": IDS, "unk_token": "[UNK]"}}


def main():
    cases = []
    for processor, config in itertools.product(PROCESSORS, CONFIGS):
        config = {"eos_token": "<|endoftext|>"} | config
        with tempfile.TemporaryDirectory() as path:
            json.dump(tokenizer(processor), open(path + "/tokenizer.json", "w"))
            json.dump(config, open(path + "/tokenizer_config.json", "w"))
            t = transformers.AutoTokenizer.from_pretrained(path)
            ids = t("a b")["input_ids"]
        cases.append({"tokenizer": json.dumps(tokenizer(processor)), "config": json.dumps(config),
                      "before": ids[: ids.index(IDS["a"])], "bos": t.bos_token_id})
    here = os.path.dirname(os.path.abspath(__file__))
    tokenizers = sorted({c["tokenizer"] for c in cases})
    for c in cases:
        c["tokenizer"] = tokenizers.index(c["tokenizer"])
    with open(here + "/fixtures/begins.cases.json", "w") as f:
        json.dump({"tokenizers": tokenizers, "cases": cases}, f, indent=0)
        f.write("\n")


main()
