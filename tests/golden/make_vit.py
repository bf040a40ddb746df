# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/vit: a tiny ViT of the transformers library in its own form, with odd sizes and random weights, a
batch, and what that library computes from them in float64: logits, loss, ten AdamW steps.

    python3 make_vit.py [--out DIR]

Development only: the test suite (tests/engine/test_vit.c) reads the stored files and needs no Python. PyTorch 1.13 or newer
and transformers 4 or 5 will do.
"""
import argparse
import json
import os

import torch
import transformers

from make_golden import OPTIMIZER as COMMON, write_safetensors

OPTIMIZER = {**COMMON, "lr": 1e-3}  # so that the loss after ten steps is no rounding

CONFIG = {"hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 44, "image_size": 15,
          "patch_size": 5, "num_channels": 3, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "qkv_bias": True,
          "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 7}
BATCH = 5


def make_model():
    torch.manual_seed(7)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**CONFIG)).double().train()
    for name, p in model.named_parameters():  # no term may hide behind a 0 or a 1
        x = torch.randn(p.shape, dtype=torch.float64)
        gain = "layernorm" in name and name.endswith("weight")
        p.data = (1 + 0.1 * x if gain else 0.3 * x).float().double()
    return model


def train(model, pixels, label):
    """Ten steps as make_golden.py's: losses before each, norms before clipping."""
    o, losses, norms = OPTIMIZER, [], []
    # weight decay is for matrices (and, here, for the table of positions; not for the class, which is a vector)
    def decays(n, p):
        return p.squeeze().dim() >= 2

    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if decays(n, p)], "weight_decay": o["weight_decay"]},
              {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    for _ in range(o["steps"]):
        adamw.zero_grad()
        logits = model(pixels).logits
        loss = torch.nn.functional.cross_entropy(logits, label, ignore_index=-1)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])))
        adamw.step()
        losses.append(loss.item())
    return losses, norms


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "vit"))
    out = args.parse_args().out
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    model = make_model()
    torch.manual_seed(8)
    pixels = torch.randn(BATCH, CONFIG["num_channels"], CONFIG["image_size"], CONFIG["image_size"]).double()
    logits = model(pixels).logits
    label = torch.tensor([3, 0, -1, 6, 3])
    label[1] = logits[1].argmax()  # one is right
    labelled = label >= 0
    right = int((logits.argmax(1) == label)[labelled].sum())
    state = {n: p.detach() for n, p in model.state_dict().items()}
    write_safetensors(os.path.join(out, "model.safetensors"), state)
    config = json.loads(model.config.to_json_string())
    for key in ("transformers_version", "torch_dtype", "dtype"):
        config.pop(key, None)
    config["architectures"] = ["ViTForImageClassification"]
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    losses, norms = train(model, pixels, label)
    with torch.no_grad():
        final = torch.nn.functional.cross_entropy(model(pixels).logits, label, ignore_index=-1).item()
    write_safetensors(os.path.join(out, "..", "vit_batch.safetensors"), {"pixels": pixels, "label": label, "logits": logits.detach(),
                                                   "final": model.classifier.weight.detach()})
    with open(os.path.join(out, "..", "vit.json"), "w") as f:
        json.dump({"optimizer": OPTIMIZER, "trained": int(labelled.sum()), "right": right, "losses": losses,
                   "grad_norms": norms, "final_loss": final}, f, indent=1)
        f.write("\n")
    print(f"vit: {sum(p.numel() for p in model.parameters())} parameters, loss {losses[0]:.6f} -> {final:.6f}, "
          f"gradient norms {norms[0]:.3f} .. {norms[-1]:.3f}, {right} right")


main()
