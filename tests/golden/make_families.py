# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/families: of every family of decoders a tiny model of the transformers library with odd sizes and
random weights, its config.json as published ones are written, a batch, and what the library computes from them in
float64: the loss, ten AdamW steps, the last token's logits, and a greedy text.

    python3 make_families.py [--out DIR] [NAME...]

Development only: the test suite (tests/engine/test_families.c) reads the stored files and needs no Python. transformers 5.
"""
import argparse
import json
import os

import torch
import transformers

from make_golden import OPTIMIZER as COMMON

# Some gradients of these models are 1e-8 of the largest: rounding. With eps 1e-8 AdamW makes whole steps of their signs,
# which are then float32's, not the model's; with this one it does not.
OPTIMIZER = {**COMMON, "lr": 1e-3, "eps": 1e-5}
B, S = 2, 19
SIZES = dict(vocab_size=31, hidden_size=16, intermediate_size=22, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=48, rms_norm_eps=1e-5, rope_theta=500.0,
             tie_word_embeddings=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=1, pad_token_id=None)
GEMMA = dict(SIZES, hidden_activation="gelu_pytorch_tanh", head_dim=6, query_pre_attn_scalar=9, tie_word_embeddings=True,
             attention_bias=False, sliding_window=4, num_hidden_layers=4)
OSS = dict(SIZES, hidden_act="silu", head_dim=6, attention_bias=True, sliding_window=4, num_hidden_layers=3,
           intermediate_size=14, experts_per_token=4, initial_context_length=4096, swiglu_limit=1.0, output_router_logits=False,
           router_aux_loss_coef=0.9, rope_scaling={
               "rope_type": "yarn", "factor": 6.0, "original_max_position_embeddings": 8, "beta_fast": 2.0,
               "beta_slow": 0.3, "truncate": False})
# A gate can be nearly shut in all columns of a group: with epsilon 1e-5 the norm behind it then makes 1e-4 of float32's
# rounding, in this library too.
SPACES = dict(vocab_size=31, hidden_size=15, state_size=7, num_hidden_layers=3, num_heads=6, head_dim=5, expand=2,
              conv_kernel=3, chunk_size=5, layer_norm_epsilon=0.1, hidden_act="silu", use_bias=False,
              use_conv_bias=True, residual_in_fp32=False, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1,
              pad_token_id=None)
# of NVIDIA's own code the least step is time_step_limit's, of transformers 5 time_step_min: one that says nothing
HYBRID = dict(vocab_size=31, hidden_size=15, intermediate_size=22, num_attention_heads=4, num_key_value_heads=2, head_dim=5,
              max_position_embeddings=48, layer_norm_epsilon=0.1, mlp_hidden_act="relu2", mamba_hidden_act="silu",
              mamba_num_heads=6, mamba_head_dim=5, ssm_state_size=7, conv_kernel=3, chunk_size=5, time_step_min=1e-9,
              time_step_limit=[0.0, float("inf")], attention_bias=False, mlp_bias=False, attention_dropout=0.0,
              residual_in_fp32=False, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, pad_token_id=None)
MODELS = {
    "llama_bias": ("llama", dict(SIZES, hidden_act="silu", attention_bias=True, mlp_bias=True, head_dim=6,
                                 rope_scaling={"type": "linear", "factor": 2.5})),
    "llama_dynamic": ("llama", dict(SIZES, hidden_act="silu", max_position_embeddings=12,
                                    rope_scaling={"type": "dynamic", "factor": 3.0})),
    "llama_yarn": ("llama", dict(SIZES, hidden_act="silu", rope_scaling={
        "rope_type": "yarn", "factor": 6.0, "original_max_position_embeddings": 8, "beta_fast": 2.0, "beta_slow": 0.3})),
    "mistral": ("mistral", dict(SIZES, hidden_act="silu", head_dim=6, sliding_window=5)),
    "qwen2": ("qwen2", dict(SIZES, hidden_act="silu", use_sliding_window=True, sliding_window=4, max_window_layers=1,
                            tie_word_embeddings=True)),
    "qwen3": ("qwen3", dict(SIZES, hidden_act="silu", head_dim=6, attention_bias=False)),
    "qwen3_moe": ("qwen3_moe", dict(SIZES, hidden_act="silu", head_dim=6, attention_bias=False, decoder_sparse_step=1,
                                    mlp_only_layers=[1], num_experts=5, num_experts_per_tok=2, moe_intermediate_size=7,
                                    norm_topk_prob=True, output_router_logits=False, router_aux_loss_coef=0.0)),
    "smollm3": ("smollm3", dict(SIZES, hidden_act="silu", no_rope_layer_interval=2, use_sliding_window=True,
                                sliding_window=6, attention_bias=True, mlp_bias=False)),
    "olmo2": ("olmo2", dict(SIZES, hidden_act="silu", attention_bias=False)),
    "phi3": ("phi3", dict(SIZES, hidden_act="silu", sliding_window=7, resid_pdrop=0.0, embd_pdrop=0.0,
                          original_max_position_embeddings=48)),
    # texts longer than the original length, which the greedy one passes, and of a part of each head; and shorter ones
    "phi3_long": ("phi3", dict(SIZES, hidden_act="silu", hidden_size=32, resid_pdrop=0.0, embd_pdrop=0.0,
                               original_max_position_embeddings=12, partial_rotary_factor=0.75, rope_scaling={
                                   "type": "longrope", "short_factor": [1.0, 1.1, 1.5], "long_factor": [1.3, 2, 7.25]})),
    "phi3_short": ("phi3", dict({k: v for k, v in SIZES.items() if k != "rope_theta"}, hidden_act="silu", resid_pdrop=0.0, embd_pdrop=0.0, max_position_embeddings=30,
                                sliding_window=6,
                                original_max_position_embeddings=24, rope_parameters={
                                    "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.25, 3.0],
                                    "long_factor": [9.0, 11.0], "factor": 2.5, "attention_factor": 1.375})),
    "gemma2": ("gemma2", dict(GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": ("gemma3_text", dict(GEMMA, sliding_window_pattern=3, rope_local_base_freq=50.0,
                                   attn_logit_softcapping=None, final_logit_softcapping=None,
                                   rope_scaling={"rope_type": "linear", "factor": 2.0})),
    # experts' widths of whole blocks, for both: bf16 files and MXFP4 files differ in the experts' tensors only
    "gpt_oss": ("gpt_oss", dict(OSS, num_experts_per_tok=2, num_local_experts=5)),
    "gpt_oss_mxfp4": ("gpt_oss", dict(OSS, hidden_size=64, intermediate_size=32, num_experts_per_tok=3, num_local_experts=3,
                                      num_hidden_layers=2, vocab_size=19,
                                      quantization_config={"modules_to_not_convert": ["model.layers.*.self_attn"],
                                                           "quant_method": "mxfp4"})),
    "mamba2": ("mamba2", dict(SPACES, n_groups=3, time_step_limit=[0.0, float("inf")])),
    "mamba2_one": ("mamba2", dict(SPACES, n_groups=1, expand=1, num_heads=3, head_dim=5, conv_kernel=4, use_bias=True,
                                  use_conv_bias=False, tie_word_embeddings=True, time_step_limit=[0.2, 1.1])),
    "nemotron_h": ("nemotron_h", dict(HYBRID, n_groups=3, num_hidden_layers=7, hybrid_override_pattern="M-M*-*M")),
    "nemotron_h_one": ("nemotron_h", dict(HYBRID, n_groups=1, num_key_value_heads=1, conv_kernel=4, use_bias=True,
                                          use_conv_bias=False, layers_block_type=[
                                              "full_attention", "linear_attention", "mlp", "linear_attention"])),
}


def randomize(model, g):
    """No term may hide behind a 0 or a 1."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g, dtype=torch.float64)
            plus_one = "gemma" in model.config.model_type
            gain = "norm" in name
            x = (0 if plus_one else 1) + 0.1 * x if gain else (0.5 if "embed" in name or "lm_head" in name else 0.3) * x
            p.copy_(x.float().double())


def draw_codes(model, g):
    """Experts' matrices as published: random codes and scales, and what the library makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    packed = {}
    for name, p in model.named_parameters():
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, ins, outs = p.shape
        blocks = torch.randint(0, 256, (experts, outs, ins // 32, 16), generator=g).to(torch.uint8)
        scales = torch.randint(119, 123, (experts, outs, ins // 32), generator=g).to(torch.uint8)
        packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
        with torch.no_grad():
            p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).double())
    return packed


def save(model, config, kind, path, packed):
    model.float().save_pretrained(path)
    model.double()
    os.remove(os.path.join(path, "generation_config.json"))
    if packed:
        from safetensors.torch import load_file, save_file
        file = os.path.join(path, "model.safetensors")
        kept = {k: v for k, v in load_file(file).items() if k + "_blocks" not in packed}
        save_file({**kept, **packed}, file, metadata={"format": "pt"})
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({"architectures": [type(model).__name__], "model_type": kind, **config}, f, indent=1)
        f.write("\n")


def train(model, tokens, targets):
    """Ten steps as make_golden.py's: losses before each, norms before clipping."""
    o, losses, norms = OPTIMIZER, [], []
    named = list(model.named_parameters())
    decays = [p.dim() >= 2 and not n.endswith("_bias") for n, p in named]  # all experts' biases are one matrix there
    groups = [{"params": [p for (n, p), d in zip(named, decays) if d], "weight_decay": o["weight_decay"]},
              {"params": [p for (n, p), d in zip(named, decays) if not d], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    for step in range(o["steps"] + 1):
        adamw.zero_grad()
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        losses.append(loss.item())
        if step == o["steps"]:
            break
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])))
        adamw.step()
    return losses, norms


def greedy(model, prompt, n):
    ids = prompt
    with torch.no_grad():
        for _ in range(n):
            ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids[0, prompt.shape[1]:].tolist()


class InDouble:
    """State spaces are computed in float32 there, whatever the weights are: not here, where two steps of AdamW tell."""

    def __init__(self, kind):
        self.on = kind in ("mamba2", "nemotron_h")

    def __enter__(self):
        self.plain = plain = torch.Tensor.float, torch.Tensor.to
        if self.on:
            torch.Tensor.float = lambda x: x if x.dtype == torch.float64 else plain[0](x)
            torch.Tensor.to = lambda x, *a, **k: x if a[:1] == (torch.float32,) and x.dtype == torch.float64 else \
                plain[1](x, *a, **k)

    def __exit__(self, *of):
        torch.Tensor.float, torch.Tensor.to = self.plain


def make(name, kind, config, out):
    g = torch.Generator().manual_seed(11)
    said = json.loads(json.dumps(config))
    said.pop("quantization_config", None)
    theirs = transformers.AutoConfig.for_model(kind, **said)
    theirs._attn_implementation = theirs._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(theirs).double().train()
    randomize(model, g)
    packed = draw_codes(model, g) if "quantization_config" in config else {}
    tokens = torch.randint(2, config["vocab_size"], (B, S), generator=g)
    targets = torch.randint(0, config["vocab_size"], (B, S), generator=g)
    targets[torch.rand(B, S, generator=g) < 0.2] = -1
    save(model, config, kind, os.path.join(out, name), packed)
    with torch.no_grad(), InDouble(kind):
        last = model(tokens).logits[0, -1].tolist()
    with InDouble(kind):
        text = greedy(model, tokens[:1, :7], 12) if "dynamic" not in name else []  # whose angles change with the length
        losses, norms = train(model, tokens, targets)
    with open(os.path.join(out, name + ".json"), "w") as f:
        json.dump({"optimizer": OPTIMIZER, "tokens": tokens.flatten().tolist(), "targets": targets.flatten().tolist(),
                   "trained": int((targets >= 0).sum()), "losses": losses, "grad_norms": norms,
                   "last_logits": [float(f"{x:.9g}") for x in last], "greedy": text}, f)
        f.write("\n")
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, loss {losses[0]:.6f} -> {losses[-1]:.6f}, "
          f"norm {norms[0]:.3f}", text)


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "families"))
    a.add_argument("names", nargs="*", help="default: all")
    args = a.parse_args()
    torch.set_num_threads(1)
    for name, (kind, config) in MODELS.items():
        if not args.names or name in args.names:
            make(name, kind, config, args.out)
