# SPDX-License-Identifier: Apache-2.0
"""Compares models.py with the transformers library: logits, loss and the gradient of every parameter, in float64.

Used by make_golden.py --huggingface. GPT-2 there keeps q, k, v in one matrix and its linear weights as
[in, out]; the maps below undo both. Document masks go in as a 4-D additive attention mask.
"""
import torch
import transformers

from models import allowed, loss_nats


def gpt2_model(c):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=c["vocab"], n_positions=c["positions"], n_embd=c["hidden"], n_layer=c["layers"],
        n_head=c["heads"], activation_function="gelu_new", layer_norm_epsilon=c["norm_eps"], resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, tie_word_embeddings=c["tie_embeddings"]))


def llama_model(c):
    rope = {"rope_type": "default", "rope_theta": c["rope_theta"]}
    s = c.get("rope_scaling")
    if s:
        rope.update(rope_type="llama3", factor=s["factor"], low_freq_factor=s["low_freq_factor"],
                    high_freq_factor=s["high_freq_factor"],
                    original_max_position_embeddings=s["original_max_position"])
    major = int(transformers.__version__.split(".")[0])
    keys = {"rope_parameters": rope} if major >= 5 else {"rope_theta": c["rope_theta"],
                                                         "rope_scaling": rope if s else None}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["ffn"], head_dim=c["head_size"],
        num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
        rms_norm_eps=c["norm_eps"], max_position_embeddings=256, tie_word_embeddings=c["tie_embeddings"], **keys))


def gpt2_pieces(c, model):
    """tutti's name -> (their parameter, how to view it or its gradient as ours)."""
    p = dict(model.named_parameters())
    D, same, turned = c["hidden"], lambda x: x, lambda x: x.T
    out = {"embed.token": (p["transformer.wte.weight"], same), "embed.position": (p["transformer.wpe.weight"], same)}
    for n in range(c["layers"]):
        us, them = f"layers.{n}.", f"transformer.h.{n}."
        for ours, theirs in (("norm1", "ln_1"), ("norm2", "ln_2")):
            for kind in ("weight", "bias"):
                out[f"{us}{ours}.{kind}"] = (p[f"{them}{theirs}.{kind}"], same)
        for i, x in enumerate("qkv"):
            cut = slice(i * D, (i + 1) * D)
            out[f"{us}attn.{x}.weight"] = (p[them + "attn.c_attn.weight"], lambda t, cut=cut: t[:, cut].T)
            out[f"{us}attn.{x}.bias"] = (p[them + "attn.c_attn.bias"], lambda t, cut=cut: t[cut])
        for ours, theirs in (("attn.o", "attn.c_proj"), ("mlp.up", "mlp.c_fc"), ("mlp.down", "mlp.c_proj")):
            out[f"{us}{ours}.weight"] = (p[f"{them}{theirs}.weight"], turned)
            out[f"{us}{ours}.bias"] = (p[f"{them}{theirs}.bias"], same)
    out["norm.weight"] = (p["transformer.ln_f.weight"], same)
    out["norm.bias"] = (p["transformer.ln_f.bias"], same)
    if not c["tie_embeddings"]:
        out["head.weight"] = (p["lm_head.weight"], same)
    return out


def llama_pieces(c, model):
    p, same = dict(model.named_parameters()), lambda x: x
    names = {"embed.token": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    for n in range(c["layers"]):
        us, them = f"layers.{n}.", f"model.layers.{n}."
        names[us + "norm1.weight"] = them + "input_layernorm.weight"
        names[us + "norm2.weight"] = them + "post_attention_layernorm.weight"
        for x in "qkvo":
            names[f"{us}attn.{x}.weight"] = f"{them}self_attn.{x}_proj.weight"
        for x in ("gate", "up", "down"):
            names[f"{us}mlp.{x}.weight"] = f"{them}mlp.{x}_proj.weight"
    if not c["tie_embeddings"]:
        names["head.weight"] = "lm_head.weight"
    return {ours: (p[theirs], same) for ours, theirs in names.items()}


def relative(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm().clamp(min=1e-8))


def compare(c, weights, batch, logits, loss, grads):
    tokens, targets, docs = batch
    build, pieces = {"gpt2": (gpt2_model, gpt2_pieces), "llama": (llama_model, llama_pieces)}[c["family"]]
    model = build(c).double().eval()
    table = pieces(c, model)
    assert table.keys() == weights.keys()
    with torch.no_grad():
        for name, (param, view) in table.items():
            view(param.data).copy_(weights[name])
    mask = None
    if docs is not None:
        mask = torch.zeros(len(tokens), 1, *2 * tokens.shape[1:], dtype=torch.float64)
        mask.masked_fill_(~allowed(tokens.shape[1], docs), torch.finfo(torch.float64).min)
    theirs = model(tokens, attention_mask=mask, position_ids=torch.arange(tokens.shape[1])[None]).logits
    their_loss = loss_nats(theirs, targets)
    their_loss.backward()
    worst = max((relative(grads[n], view(param.grad)), n) for n, (param, view) in table.items())
    return (f"logits differ by {relative(logits, theirs.detach()):.1e}, "
            f"loss by {abs(loss / their_loss.item() - 1):.1e}, gradients by at most {worst[0]:.1e} ({worst[1]}), "
            f"relative; version {transformers.__version__}")
