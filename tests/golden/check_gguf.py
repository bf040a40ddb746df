# SPDX-License-Identifier: Apache-2.0
"""Compares GGUF files that tutti writes with what llama.cpp makes of them: python3 tests/golden/check_gguf.py build/tutti [NAME...]

Of each family a small model of random weights, made by transformers, is exported as f32, bf16 and q8_0. llama.cpp (the xllamacpp wheel)
reads the file, cuts texts into tokens and writes 16 tokens, the most likely each time. Tokens must be those of the folder's tokenizer.json by
transformers; the text that of transformers with the same weights (of q8_0: of the weights that the file has, by the gguf package), and
log-probabilities near its own. Wants torch, transformers, gguf and xllamacpp; what it printed last is in tests/golden/gguf.txt.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy
import tokenizers
import torch
import transformers
import xllamacpp

import check_trl

TEXTS = ["Once upon a time there were 12345 naïve children's toys; THEY'LL ask: \"why?\"\n\n  Two  spaces, tabs\t\tand 北京 too…",
         "x = [1, 22, 333]  # it's\r\n\tfoo_bar(Baz);\n \n", " leading, trailing ", "don't DON'T I'm we've", "é è ñ ü 🙂 1 23 456 7890"]
END = 3


def through_table(name):
    """llama.cpp has a table of GELU in float16."""
    return name.startswith("gemma") or name == "gpt2"


SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=END, pad_token_id=None,
             tie_word_embeddings=False)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", head_dim=16, query_pre_attn_scalar=16, sliding_window=7, num_hidden_layers=7,
             tie_word_embeddings=True, attention_bias=False)
MODELS = {
    "llama": ("llama", "llama3", dict(rope_theta=5000.0)),
    "llama_bytes": ("llama", "bytes", dict(rope_theta=5000.0)),
    "llama_tied": ("llama", "gpt2", dict(tie_word_embeddings=True, head_dim=32)),
    "llama_bias": ("llama", "qwen2", dict(attention_bias=True)),
    "llama_llama3": ("llama", "llama3", dict(rope_theta=5000.0, rope_scaling=LLAMA3)),
    "llama_linear": ("llama", "gpt2", dict(rope_scaling={"rope_type": "linear", "factor": 4.0})),
    "llama_yarn": ("llama", "pieces", dict(rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})),
    "mistral": ("mistral", "pieces", dict(sliding_window=None, head_dim=32)),
    "mixtral": ("mixtral", "pieces", dict(sliding_window=None, num_local_experts=5, num_experts_per_tok=2)),
    "smollm3": ("smollm3", "digits", dict(num_hidden_layers=6, no_rope_layer_interval=4, tie_word_embeddings=True)),
    "qwen2": ("qwen2", "qwen2", dict(tie_word_embeddings=True, use_sliding_window=False)),
    "qwen3": ("qwen3", "qwen2", dict(head_dim=32, attention_bias=False)),
    "qwen3_moe": ("qwen3_moe", "qwen2", dict(head_dim=32, attention_bias=False, decoder_sparse_step=1, mlp_only_layers=[], num_experts=6,
                                             num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)),
    "olmo2": ("olmo2", "llama3", dict(num_key_value_heads=4)),
    "phi3": ("phi3", "pieces_phi3", dict(sliding_window=None, resid_pdrop=0.0, embd_pdrop=0.0)),
    "gemma2": ("gemma2", "pieces_bare", dict(GEMMA, attn_logit_softcapping=5.0, final_logit_softcapping=8.0)),
    "gemma3": ("gemma3_text", "pieces_bare", dict(GEMMA, sliding_window_pattern=6, rope_local_base_freq=10000.0, rope_theta=50000.0,
                                                  attn_logit_softcapping=None, final_logit_softcapping=None)),
    "gpt2": ("gpt2", "gpt2", dict(n_embd=64, n_layer=3, n_head=4, n_positions=256, tie_word_embeddings=True)),
}


def call(*command):
    done = subprocess.run(command, capture_output=True, env=os.environ | {"LOG": "warn"})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.decode()}")


def tokenizer_of(tutti, work, style):
    """A folder's tokenizer.json: byte-level ones are trained by tutti, those of pieces by SentencePiece, as Llama 2 and Gemma have
    theirs."""
    to = work / f"{style}.json"
    if to.exists():
        return to
    text = work / "text.txt"
    text.write_text("\n".join(TEXTS * 4) + "\n" + pathlib.Path(__file__).read_text())
    if style == "bytes":
        inner = check_trl.byte_tokenizer().backend_tokenizer
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.save(str(to))
        return to
    if not style.startswith("pieces"):
        call(tutti, "data", "train-tokenizer", "--vocab-size", "448", "--style", "gpt2" if style == "digits" else style, "--out", to, text)
        if style == "digits":
            said = json.loads(to.read_text())
            said["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                                               "use_regex": True}]}
            to.write_text(json.dumps(said))
        return to
    import sentencepiece
    from transformers.convert_slow_tokenizer import generate_merges
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(work / "sp"), vocab_size=640, model_type="bpe", byte_fallback=True, character_coverage=0.99,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    p = sentencepiece.SentencePieceProcessor(model_file=str(work / "sp.model"))
    vocab = {p.id_to_piece(i): i for i in range(p.get_piece_size())}
    merges = generate_merges(vocab, {p.id_to_piece(i): p.get_score(i) for i in range(p.get_piece_size())})
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    space = tokenizers.normalizers.Replace(" ", "\u2581")
    inner.normalizer = space if style == "pieces_bare" else tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("\u2581"), space])
    inner.add_special_tokens(["<unk>", "<s>", "</s>"] + ["<|endoftext|>"] * (style == "pieces_phi3"))
    inner.save(str(to))
    return to


def make(work, name, tutti):
    kind, style, more = MODELS[name]
    folder = work / name
    torch.manual_seed(3)
    tokenizer = tokenizer_of(tutti, work, style)
    vocab = len(transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer)))
    keys = more if kind == "gpt2" else {**SIZES, **more}
    config = transformers.AutoConfig.for_model(kind, vocab_size=vocab, **keys)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for n, p in model.named_parameters():
        torch.nn.init.normal_(p, 1 if "norm" in n and "bias" not in n else 0, 0.2)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer.read_text())
    return model, transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


class Reader:
    """llama.cpp with a file."""

    def __init__(self, path):
        p = xllamacpp.CommonParams()
        p.model.path = str(path)
        p.n_ctx, p.n_parallel, p.n_gpu_layers, p.verbosity, p.port = 256, 1, 0, -1, 0
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
        p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        p.warmup = False
        self.server = xllamacpp.Server(p)

    def ask(self, route, **body):
        request = urllib.request.Request(self.server.listening_address + route, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())

    def tokens(self, text):
        return self.ask("/tokenize", content=text, add_special=False, parse_special=False)["tokens"]

    def write(self, ids, n):
        said = self.ask("/completion", prompt=ids, n_predict=n, temperature=0, n_probs=1, cache_prompt=False, ignore_eos=False,
                        samplers=["temperature"], return_tokens=True)
        told = said["completion_probabilities"]  # of tokens that end in the middle of a letter nothing is told
        out, at = [], 0
        for token in said["tokens"]:
            known = at < len(told) and told[at]["id"] == token
            out.append((token, told[at]["logprob"] if known else math.nan))
            at += known
        return out


def rounded_alike(path, kind, plain):
    """Tensors of a file are what the gguf package makes of those of the f32 file."""
    of = gguf.GGMLQuantizationType.BF16 if kind == "bf16" else gguf.GGMLQuantizationType.Q8_0
    whole = {t.name: t for t in gguf.GGUFReader(plain).tensors}
    n = 0
    for t in gguf.GGUFReader(path).tensors:
        if t.tensor_type == of:
            n += 1
            rows = gguf.dequantize(whole[t.name].data, whole[t.name].tensor_type)
            if not (gguf.quantize(rows, of) == t.data.view(numpy.uint8).reshape(gguf.quantize(rows, of).shape)).all():
                return False
    return n > 10


@torch.no_grad()
def write(model, ids, n):
    out, ids = [], list(ids)
    for _ in range(n):
        p = model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)
        best = int(p.argmax())
        out.append((best, float(p[best])))
        ids.append(best)
    return out


def main(tutti, names):
    torch.set_num_threads(1)
    work = pathlib.Path(tempfile.mkdtemp())
    failed = False
    for name in names or MODELS:
        model, tokenizer = make(work, name, tutti)
        for kind in ("f32", "bf16", "q8_0"):
            path, plain = work / f"{name}.{kind}.gguf", work / f"{name}.f32.gguf"
            call(tutti, "checkpoint", "export", work / name, path, "--format", "gguf", "--dtype", kind)
            reader = Reader(path)
            for text in TEXTS if kind == "f32" else []:
                theirs, ours = reader.tokens(text), tokenizer(text, add_special_tokens=False)["input_ids"]
                if theirs != ours:
                    failed = True
                    print(f"{name}: tokens of {text!r}: {theirs}, not {ours}")
            ids = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"][:40]
            theirs, ours = reader.write(ids, 16), write(model, ids, 16)
            ended = next((i for i, t in enumerate(ours) if t[0] == END), len(ours))  # llama.cpp does not tell an end's probability
            same = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a[0] != b[0]), min(len(theirs), ended))
            apart = max((abs(a[1] - b[1]) for a, b in zip(theirs[:max(same, 1)], ours) if a[1] == a[1]), default=math.nan)
            print(f"{name} {kind}: {same} of {ended} tokens equal, log-probabilities differ by at most {apart:.1e}", flush=True)
            if kind == "f32":
                failed |= same < ended or not apart < (1e-2 if through_table(name) else 1e-4)
            elif not rounded_alike(path, kind, plain):
                failed = True
                print(f"{name} {kind}: numbers are not those that the gguf package makes")
            del reader
    print(f"transformers {transformers.__version__}, gguf, xllamacpp {xllamacpp.BUILD_INFO}")
    if failed:
        sys.exit("they differ")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
