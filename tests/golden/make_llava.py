# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/llava: tiny LLaVA models of the transformers library in its own form, with odd sizes and random
weights, a batch of texts with two, one and no pictures, and what that library computes from them in float64: the loss,
ten AdamW steps, and a greedy text of a prompt with a picture.

    python3 make_llava.py [--out DIR]

Development only: the test suite (tests/engine/test_llava.c) reads the stored files and needs no Python. transformers 5.
"""
import argparse
import json
import os

import torch
import transformers

from make_golden import OPTIMIZER as COMMON

OPTIMIZER = {**COMMON, "lr": 1e-3}
B, S, PICTURES, TOKEN, PROMPT = 3, 17, 2, 30, 9
TEXT = dict(model_type="llama", vocab_size=31, hidden_size=16, intermediate_size=22, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=32, rms_norm_eps=1e-5,
            rope_theta=500.0, hidden_act="silu", tie_word_embeddings=False, attention_bias=False, mlp_bias=False)
TOWER = dict(hidden_size=15, intermediate_size=22, num_hidden_layers=3, num_attention_heads=3, image_size=6, patch_size=3,
             num_channels=3)
MODELS = {
    "clip": dict(vision_config=dict(TOWER, model_type="clip_vision_model", hidden_act="quick_gelu", projection_dim=8,
                                    layer_norm_eps=1e-4),
                 vision_feature_layer=-2, vision_feature_select_strategy="default"),
    "siglip": dict(vision_config=dict(TOWER, model_type="siglip_vision_model", hidden_act="gelu_pytorch_tanh",
                                      layer_norm_eps=1e-6, vision_use_head=False),
                   vision_feature_layer=-1, vision_feature_select_strategy="full"),
}
# where pictures begin in each text, of 4 tokens each
PLACES = [[2, 6], [9], []]


def randomize(model, g):
    """No term may hide behind a 0 or a 1."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g, dtype=torch.float64)
            gain = "norm" in name and name.endswith("weight")
            p.copy_((1 + 0.1 * x if gain else 0.3 * x).float().double())


def train(model, inputs, targets):
    """Ten steps as make_golden.py's: losses before each, norms before clipping."""
    o, losses, norms = OPTIMIZER, [], []
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if p.dim() >= 2], "weight_decay": o["weight_decay"]},
              {"params": [p for n, p in named if p.dim() < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    for step in range(o["steps"] + 1):
        adamw.zero_grad()
        logits = model(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        losses.append(loss.item())
        if step == o["steps"]:
            break
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])))
        adamw.step()
    return losses, norms


def greedy(model, prompt, pixels, n):
    ids = prompt
    with torch.no_grad():
        for _ in range(n):
            logits = model(input_ids=ids, pixel_values=pixels, use_cache=False).logits[:, -1]
            logits[:, TOKEN] = -1e9
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    return ids[0, prompt.shape[1]:].tolist()


def make(name, config, out):
    g = torch.Generator().manual_seed(11)
    said = dict(config, text_config=TEXT, image_token_index=TOKEN, projector_hidden_act="gelu", tie_word_embeddings=False)
    theirs = transformers.LlavaConfig(**json.loads(json.dumps(said)))
    theirs._attn_implementation = "eager"
    model = transformers.LlavaForConditionalGeneration(theirs).double().train()
    randomize(model, g)
    tokens = torch.randint(2, TOKEN, (B, S), generator=g)
    targets = torch.randint(0, TOKEN, (B, S), generator=g)
    targets[torch.rand(B, S, generator=g) < 0.2] = -1
    pixels = torch.zeros(B, PICTURES, 3, 6, 6, dtype=torch.float64)
    seen = []
    for b, places in enumerate(PLACES):
        for k, at in enumerate(places):
            tokens[b, at:at + 4] = TOKEN
            targets[b, max(at - 1, 0):at + 3] = -1
            pixels[b, k] = torch.randint(-16, 17, (3, 6, 6), generator=g) / 8
            seen.append(pixels[b, k])
    folder = os.path.join(out, name)
    model.float().save_pretrained(folder)
    model.double()
    os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", **said}, f, indent=1)
        f.write("\n")
    text = greedy(model, tokens[:1, :PROMPT + 1], torch.stack(seen[:2]), 12)
    losses, norms = train(model, dict(input_ids=tokens, pixel_values=torch.stack(seen)), targets)
    with open(os.path.join(out, name + ".json"), "w") as f:
        json.dump({"optimizer": OPTIMIZER, "tokens": tokens.flatten().tolist(), "targets": targets.flatten().tolist(),
                   "pixels": pixels.flatten().tolist(), "trained": int((targets >= 0).sum()), "losses": losses,
                   "grad_norms": norms, "greedy": text}, f)
        f.write("\n")
    print(f"{name}: loss {losses[0]:.6f} -> {losses[-1]:.6f}, norm {norms[0]:.3f}", text)


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "llava"))
    args = a.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.set_num_threads(1)
    for name, config in MODELS.items():
        make(name, config, args.out)
