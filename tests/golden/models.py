# SPDX-License-Identifier: Apache-2.0
"""Plain GPT-2 and Llama for the golden files: the formulas, one after another, in the tensors' own dtype.

This is the independent implementation that tutti is compared with, so it shares nothing with tutti: no kernels,
no blocking, no fused anything. Attention builds its whole T x T matrix; rotary multiplies by cosines and sines
of the plain angle; autograd supplies every gradient. Parameters live in a dict under tutti's names and shapes
(README.md lists them); a linear layer is y = x W^T + b with W [out, in].

Shape suffixes: B sequences, T positions, D hidden, H query heads, G key/value heads, A head size, V vocabulary.
"""
import math

import torch


def gpt2_shapes(c):
    """name -> shape, in tutti's order, for a config dict c."""
    D, V = c["hidden"], c["vocab"]
    s = {"embed.token": (V, D), "embed.position": (c["positions"], D)}
    for n in range(c["layers"]):
        p = f"layers.{n}."
        s[p + "norm1.weight"] = s[p + "norm1.bias"] = (D,)
        for x in "qkv":
            s[p + f"attn.{x}.weight"], s[p + f"attn.{x}.bias"] = (D, D), (D,)
        s[p + "attn.o.weight"], s[p + "attn.o.bias"] = (D, D), (D,)
        s[p + "norm2.weight"] = s[p + "norm2.bias"] = (D,)
        s[p + "mlp.up.weight"], s[p + "mlp.up.bias"] = (4 * D, D), (4 * D,)
        s[p + "mlp.down.weight"], s[p + "mlp.down.bias"] = (D, 4 * D), (D,)
    s["norm.weight"] = s["norm.bias"] = (D,)
    if not c["tie_embeddings"]:
        s["head.weight"] = (V, D)
    return s


def llama_shapes(c):
    D, V, F, A = c["hidden"], c["vocab"], c["ffn"], c["head_size"]
    HA, GA = c["heads"] * A, c["kv_heads"] * A
    s = {"embed.token": (V, D)}
    for n in range(c["layers"]):
        p = f"layers.{n}."
        s[p + "norm1.weight"] = (D,)
        s[p + "attn.q.weight"], s[p + "attn.k.weight"], s[p + "attn.v.weight"] = (HA, D), (GA, D), (GA, D)
        s[p + "attn.o.weight"] = (D, HA)
        s[p + "norm2.weight"] = (D,)
        s[p + "mlp.gate.weight"], s[p + "mlp.up.weight"], s[p + "mlp.down.weight"] = (F, D), (F, D), (D, F)
    s["norm.weight"] = (D,)
    if not c["tie_embeddings"]:
        s["head.weight"] = (V, D)
    return s


def allowed(T, docs_BT):
    """[B or 1, 1, T, T] booleans: query t sees key u <= t of the same document."""
    causal = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
    if docs_BT is None:
        return causal
    return causal & (docs_BT[:, None, :, None] == docs_BT[:, None, None, :])


def attention(q_BHTA, k_BHTA, v_BHTA, mask):
    scores = q_BHTA @ k_BHTA.transpose(-1, -2) / math.sqrt(q_BHTA.shape[-1])
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v_BHTA


def split_heads(x_BTD, heads):
    B, T, D = x_BTD.shape
    return x_BTD.view(B, T, heads, D // heads).transpose(1, 2)


def join_heads(x_BHTA):
    B, H, T, A = x_BHTA.shape
    return x_BHTA.transpose(1, 2).reshape(B, T, H * A)


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def rms_norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2_logits(c, w, tokens_BT, docs_BT=None):
    B, T = tokens_BT.shape
    mask = allowed(T, docs_BT)
    linear = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]
    norm = lambda x, name: layer_norm(x, w[name + ".weight"], w[name + ".bias"], c["norm_eps"])
    x = w["embed.token"][tokens_BT] + w["embed.position"][:T]
    for n in range(c["layers"]):
        p = f"layers.{n}."
        h = norm(x, p + "norm1")
        q, k, v = (split_heads(linear(h, p + "attn." + y), c["heads"]) for y in "qkv")
        x = x + linear(join_heads(attention(q, k, v, mask)), p + "attn.o")
        h = norm(x, p + "norm2")
        x = x + linear(gelu_tanh(linear(h, p + "mlp.up")), p + "mlp.down")
    return norm(x, "norm") @ w.get("head.weight", w["embed.token"]).T


def rotary_frequencies(c):
    """Radians per position for each of the A/2 planes; Llama 3 stretches the slow ones."""
    A = c["head_size"]
    freq = [c["rope_theta"] ** (-2 * i / A) for i in range(A // 2)]
    s = c.get("rope_scaling")
    if s is None:
        return freq
    out = []
    for f in freq:
        turns = s["original_max_position"] * f / (2 * math.pi)  # turns within the original context
        blend = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        blend = min(1.0, max(0.0, blend))  # 0: slow, stretched by factor; 1: fast, left alone
        out.append(f * blend + f / s["factor"] * (1 - blend))
    return out


def rotate(x_BHTA, freq):
    """Plane i is the pair (x[i], x[i + A/2]): the rotate_half convention."""
    T, half = x_BHTA.shape[2], x_BHTA.shape[3] // 2
    angle = torch.arange(T, dtype=x_BHTA.dtype)[:, None] * torch.tensor(freq, dtype=x_BHTA.dtype)
    a, b = x_BHTA[..., :half], x_BHTA[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def llama_logits(c, w, tokens_BT, docs_BT=None):
    T = tokens_BT.shape[1]
    mask, freq, groups = allowed(T, docs_BT), rotary_frequencies(c), c["heads"] // c["kv_heads"]
    linear = lambda x, name: x @ w[name + ".weight"].T
    norm = lambda x, name: rms_norm(x, w[name + ".weight"], c["norm_eps"])
    x = w["embed.token"][tokens_BT]
    for n in range(c["layers"]):
        p = f"layers.{n}."
        h = norm(x, p + "norm1")
        q = rotate(split_heads(linear(h, p + "attn.q"), c["heads"]), freq)
        k = rotate(split_heads(linear(h, p + "attn.k"), c["kv_heads"]), freq)
        v = split_heads(linear(h, p + "attn.v"), c["kv_heads"])
        k, v = (y.repeat_interleave(groups, dim=1) for y in (k, v))  # query head h reads kv head h / groups
        x = x + linear(join_heads(attention(q, k, v, mask)), p + "attn.o")
        h = norm(x, p + "norm2")
        gate = linear(h, p + "mlp.gate")
        x = x + linear(gate * torch.sigmoid(gate) * linear(h, p + "mlp.up"), p + "mlp.down")
    return norm(x, "norm") @ w.get("head.weight", w["embed.token"]).T


FAMILIES = {"gpt2": (gpt2_shapes, gpt2_logits), "llama": (llama_shapes, llama_logits)}


def loss_nats(logits_BTV, targets_BT):
    """Sum of -log p(target) over trained positions (target >= 0), over their count."""
    trained = targets_BT >= 0
    logp = logits_BTV - logits_BTV.logsumexp(-1, keepdim=True)
    nats = -logp.gather(-1, targets_BT.clamp(min=0)[..., None])[..., 0]
    return (nats * trained).sum() / trained.sum()
