# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/bert and bert_told: tiny BERTs of the transformers library in its own form, one that tells masked
tokens, one that tells classes, with odd sizes and random weights, a batch, and what that library computes in float64:
logits, loss, ten AdamW steps.

    python3 make_bert.py [--out DIR]

Development only: the test suite (tests/engine/test_bert.c) reads the stored files and needs no Python. PyTorch 1.13 or newer
and transformers 4 or 5 will do.
"""
import argparse
import json
import os

import torch
import transformers

from make_golden import OPTIMIZER as COMMON, write_safetensors

# So that the loss after ten steps is no rounding, and no small rest of what it was.
OPTIMIZER, RATES = COMMON, {"bert": 1e-3, "bert_told": 2e-4}

CONFIG = {"vocab_size": 61, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 44,
          "max_position_embeddings": 13, "type_vocab_size": 3, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
          "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": None}
BATCH, SEQ, CLASSES = 5, 11, 4


def make_model(told):
    torch.manual_seed(7)
    # a table of tokens drawn as the rest: its row of padding must not be zero
    config = transformers.BertConfig(**CONFIG, **({"num_labels": CLASSES} if told else {}))
    kind = transformers.BertForSequenceClassification if told else transformers.BertForMaskedLM
    model = kind(config).double().train()
    for name, p in model.named_parameters():  # no term may hide behind a 0 or a 1
        x = torch.randn(p.shape, dtype=torch.float64)
        gain = "LayerNorm" in name and name.endswith("weight")
        p.data = (1 + 0.1 * x if gain else 0.3 * x).float().double()
    return model


def loss_of(model, ids, kinds, targets):
    logits = model(input_ids=ids, token_type_ids=kinds).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def train(model, lr, ids, kinds, targets):
    """Ten steps as make_golden.py's: losses before each, norms before clipping."""
    o, losses, norms = OPTIMIZER, [], []
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if p.dim() >= 2], "weight_decay": o["weight_decay"]},
              {"params": [p for n, p in named if p.dim() < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=lr, betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    for _ in range(o["steps"]):
        adamw.zero_grad()
        loss = loss_of(model, ids, kinds, targets)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])))
        adamw.step()
        losses.append(loss.item())
    return losses, norms


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    out = args.parse_args().out
    torch.set_num_threads(1)
    torch.manual_seed(8)
    ids = torch.randint(0, CONFIG["vocab_size"], (BATCH, SEQ))
    kinds = torch.randint(0, CONFIG["type_vocab_size"], (BATCH, SEQ))
    hidden = torch.where(torch.rand(BATCH, SEQ) < 0.4, torch.randint(0, CONFIG["vocab_size"], (BATCH, SEQ)), -1)
    label = torch.tensor([3, 0, -1, 1, 3])
    batch, results = {"tokens": ids, "segments": kinds, "hidden": hidden, "label": label}, {"optimizer": OPTIMIZER}
    for told in (False, True):
        name = "bert_told" if told else "bert"
        model, targets = make_model(told), label if told else hidden
        os.makedirs(os.path.join(out, name), exist_ok=True)
        logits = model(input_ids=ids, token_type_ids=kinds).logits
        if told:
            label[1] = logits[1].argmax()  # one is right
        shared = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}  # kept once, as the library does
        state = {n: p.detach() for n, p in model.state_dict().items() if n not in shared and not n.endswith("position_ids")}
        write_safetensors(os.path.join(out, name, "model.safetensors"), state)
        config = json.loads(model.config.to_json_string())
        for key in ("transformers_version", "torch_dtype", "dtype"):
            config.pop(key, None)
        config["architectures"] = [type(model).__name__]
        with open(os.path.join(out, name, "config.json"), "w") as f:
            json.dump(config, f, indent=1)
            f.write("\n")
        right = int((logits.argmax(-1) == targets)[targets >= 0].sum())
        losses, norms = train(model, RATES[name], ids, kinds, targets)
        with torch.no_grad():
            final = loss_of(model, ids, kinds, targets).item()
        results[name] = {"lr": RATES[name], "trained": int((targets >= 0).sum()), "right": right, "losses": losses, "grad_norms": norms,
                         "final_loss": final}
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {losses[0]:.6f} -> {final:.6f}, "
              f"gradient norms {norms[0]:.3f} .. {norms[-1]:.3f}, {right} right")
    write_safetensors(os.path.join(out, "bert_batch.safetensors"), batch)
    with open(os.path.join(out, "bert.json"), "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")


main()
