# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files: tiny models, their gradients and ten optimizer steps, computed in float64.

    python3 make_golden.py [--out DIR] [--huggingface]

Development only: the test suite reads the stored files and needs no Python. Any PyTorch from 1.13 on will do;
with --huggingface the logits, loss and gradients are also compared with the transformers library's models,
and the agreement is printed. README.md documents what is stored; models.py holds the formulas.
"""
import argparse
import json
import os
import struct

import torch

from models import FAMILIES, loss_nats

OPTIMIZER = {"name": "adamw", "lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
             "clip": 1.0, "steps": 10}

GPT2 = {"family": "gpt2", "norm_eps": 1e-5}
LLAMA = {"family": "llama", "norm_eps": 1e-5, "rope_theta": 10000.0}
MODELS = {
    "gpt2_tied": {**GPT2, "vocab": 61, "hidden": 24, "heads": 3, "head_size": 8, "layers": 2, "positions": 16,
                  "tie_embeddings": True, "batch": 3, "seq_len": 12},
    "gpt2_untied": {**GPT2, "vocab": 257, "hidden": 10, "heads": 2, "head_size": 5, "layers": 1, "positions": 9,
                    "tie_embeddings": False, "batch": 2, "seq_len": 9},
    "llama_gqa": {**LLAMA, "vocab": 53, "hidden": 24, "heads": 4, "kv_heads": 2, "head_size": 6, "ffn": 20,
                  "layers": 2, "tie_embeddings": False, "batch": 3, "seq_len": 12},
    # theta and original_max_position put one plane in each regime: left alone, blended, stretched.
    "llama3_rope": {**LLAMA, "rope_theta": 500.0, "vocab": 53, "hidden": 16, "heads": 2, "kv_heads": 1,
                    "head_size": 8, "ffn": 20, "layers": 2, "tie_embeddings": True, "batch": 2, "seq_len": 17,
                    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_max_position": 32}},
    "llama_docs": {**LLAMA, "vocab": 31, "hidden": 24, "heads": 4, "kv_heads": 2, "head_size": 6, "ffn": 20,
                   "layers": 1, "tie_embeddings": False, "batch": 3, "seq_len": 13, "documents": True},
}


def initial_weights(c, g):
    """Gains near 1, biases and matrices near 0, all of them random: no term may hide behind a 0 or a 1."""
    weights = {}
    for name, shape in FAMILIES[c["family"]][0](c).items():
        x = torch.randn(shape, generator=g, dtype=torch.float64)
        gain = "norm" in name and name.endswith(".weight")
        x = 1 + 0.1 * x if gain else (0.4 if name.startswith(("embed", "head")) else 0.2) * x
        weights[name] = x.float().double()  # exactly what the file will hold
    return weights


def make_batch(c, g):
    B, T = c["batch"], c["seq_len"]
    tokens = torch.randint(0, c["vocab"], (B, T), generator=g)
    targets = torch.randint(0, c["vocab"], (B, T), generator=g)
    targets[torch.rand(B, T, generator=g) < 0.2] = -1
    assert 0 < int((targets < 0).sum()) < B * T
    docs = None
    if c.get("documents"):  # a new id wherever a coin says so; sequence 0 is a single document
        docs = (torch.rand(B, T, generator=g) < 0.25).long().cumsum(1)
        docs[0] = 0
        assert int(docs.max()) > 0
    return tokens, targets, docs


def forward_backward(c, weights, batch):
    """(logits, loss, gradients) with fresh gradients."""
    tokens, targets, docs = batch
    leaves = {n: x.detach().clone().requires_grad_() for n, x in weights.items()}
    logits = FAMILIES[c["family"]][1](c, leaves, tokens, docs)
    loss = loss_nats(logits, targets)
    loss.backward()
    return logits.detach(), loss.item(), {n: x.grad for n, x in leaves.items()}


def train(c, weights, batch):
    """Ten AdamW steps on the fixed batch: (final weights, losses before each step, gradient norms before clip)."""
    o = OPTIMIZER
    params = {n: torch.nn.Parameter(x.clone()) for n, x in weights.items()}
    groups = [{"params": [p for p in params.values() if p.dim() == 2], "weight_decay": o["weight_decay"]},
              {"params": [p for p in params.values() if p.dim() != 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms = [], []
    for _ in range(o["steps"]):
        _, loss, grads = forward_backward(c, {n: p.data for n, p in params.items()}, batch)
        norm = float(sum(g.square().sum() for g in grads.values()).sqrt())
        for n, p in params.items():
            p.grad = grads[n] * min(1.0, o["clip"] / norm)
        adamw.step()
        losses.append(loss)
        norms.append(norm)
    return {n: p.data for n, p in params.items()}, losses, norms


def write_safetensors(path, tensors):
    """8 bytes of header length, a JSON header padded to 8 bytes, then the arrays: F32 and I32 only."""
    header, blobs, at = {}, [], 0
    for name, x in tensors.items():
        x, dtype = (x.float(), "F32") if x.is_floating_point() else (x.int(), "I32")
        blob = x.contiguous().numpy().astype("<f4" if dtype == "F32" else "<i4").tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    args.add_argument("--huggingface", action="store_true", help="compare with the transformers library")
    args = args.parse_args()
    torch.set_num_threads(1)
    scalars = {"optimizer": OPTIMIZER, "models": {}}
    for i, (name, c) in enumerate(MODELS.items()):
        g = torch.Generator().manual_seed(1000 + i)
        weights, batch = initial_weights(c, g), make_batch(c, g)
        logits, loss, grads = forward_backward(c, weights, batch)
        final, losses, norms = train(c, weights, batch)
        final_loss = forward_backward(c, final, batch)[1]
        tensors = {"tokens": batch[0], "targets": batch[1]}
        if batch[2] is not None:
            tensors["docs"] = batch[2]
        tensors["logits"] = logits
        for prefix, values in (("init", weights), ("grad", grads), ("final", final)):
            tensors.update({f"{prefix}.{n}": x for n, x in values.items()})
        write_safetensors(os.path.join(args.out, name + ".safetensors"), tensors)
        scalars["models"][name] = {"config": c, "trained_tokens": int((batch[1] >= 0).sum()), "loss": loss,
                                   "losses": losses, "grad_norms": norms, "final_loss": final_loss}
        print(f"{name}: {sum(x.numel() for x in weights.values())} parameters, loss {loss:.6f} -> {final_loss:.6f}, "
              f"gradient norms {norms[0]:.3f} .. {norms[-1]:.3f}")
        if args.huggingface:
            import check_huggingface
            print("   transformers: " + check_huggingface.compare(c, weights, batch, logits, loss, grads))
    with open(os.path.join(args.out, "golden.json"), "w") as f:
        json.dump(scalars, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
