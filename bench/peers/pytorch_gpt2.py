# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of whole GPT-2 training steps in PyTorch on this machine's CPU.

    python3 pytorch_gpt2.py --batch 1 --seq 1024 --threads 2 --dtype bf16 --steps 5

A step is what a trainer does: zero gradients, forward under autocast, cross-entropy, backward, clip by global
norm, AdamW. The model is GPT-2 124M unless sizes are given: learned positions, pre-LayerNorm, one fused QKV matrix, the
library's fused attention where it has one, tanh GELU, tied head, no dropout. Weights stay fp32, as autocast wants.

Prints one JSON object. The machine may be shared: `best_step_s` is the fastest step after the warm-up, and the load
averages before and after say whether to believe it. Compare with `tutti bench train` of the same hour only.
"""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            future = torch.ones(T, T, dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(D // self.heads)
            y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocab, positions, layers, hidden, heads):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model, kind):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    keys = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8}
    for choice in ("fused", "foreach", "loop") if kind == "fastest" else (kind,):
        try:
            adamw = torch.optim.AdamW(groups, **keys, **({} if choice == "loop" else {choice: True}))
            return adamw, choice
        except (RuntimeError, TypeError, ValueError):  # an older PyTorch has no fused AdamW for the CPU
            if kind != "fastest":
                raise


def load_average():
    with open("/proc/loadavg") as f:
        return [float(x) for x in f.read().split()[:3]]


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--batch", type=int, default=1)
    a.add_argument("--seq", type=int, default=1024)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    a.add_argument("--steps", type=int, default=5, help="timed steps, after the warm-up")
    a.add_argument("--warmup", type=int, default=2)
    a.add_argument("--adamw", choices=("fastest", "fused", "foreach", "loop"), default="fastest")
    a.add_argument("--compile", action="store_true", help="torch.compile (needs a C++ compiler; minutes)")
    a.add_argument("--layers", type=int, default=12)
    a.add_argument("--hidden", type=int, default=768)
    a.add_argument("--heads", type=int, default=12)
    a.add_argument("--vocab", type=int, default=50257)
    a = a.parse_args()

    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = GPT2(a.vocab, a.seq, a.layers, a.hidden, a.heads)
    run = torch.compile(model) if a.compile else model
    adamw, kind = make_optimizer(model, a.adamw)
    tokens = torch.randint(0, a.vocab, (a.batch, a.seq + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    load_before, seconds, optimizer_s, loss = load_average(), [], [], None
    for _ in range(a.warmup + a.steps):
        start = time.perf_counter()
        adamw.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = run(inputs, targets)
        loss.backward()
        before_update = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        end = time.perf_counter()
        seconds.append(end - start)
        optimizer_s.append(end - before_update)
    seconds, optimizer_s = seconds[a.warmup:], optimizer_s[a.warmup:]
    n = a.batch * a.seq
    print(json.dumps({
        "program": "pytorch " + torch.__version__, "model": "gpt2",
        "params": sum(p.numel() for p in model.parameters()), "vocab": a.vocab, "batch": a.batch, "seq": a.seq,
        "threads": a.threads, "dtype": a.dtype, "compile": a.compile, "adamw": kind,
        "best_step_s": round(min(seconds), 4), "median_step_s": round(statistics.median(seconds), 4),
        "best_tokens_per_s": round(n / min(seconds), 1),
        "median_tokens_per_s": round(n / statistics.median(seconds), 1),
        "clip_and_adamw_s": round(min(optimizer_s), 4), "loss": round(loss.item(), 4),
        "load_before": load_before, "load_after": load_average()}))


if __name__ == "__main__":
    main()
