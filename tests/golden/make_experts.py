# SPDX-License-Identifier: Apache-2.0
"""Makes the golden directories of models with experts: experts/NAME holds a tiny model as the transformers library saves
it, experts/NAME.grad the gradients of its loss under the same names, experts/NAME.json tokens, targets, logits and loss.

    python3 make_experts.py [--out DIR]

Development only, like make_golden.py: the library's own models compute everything, in float64.
"""
import argparse
import json
import os

import torch
import transformers

COMMON = dict(vocab_size=37, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64,
              rms_norm_eps=1e-5, attention_dropout=0.0, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
LATENT = dict(COMMON, num_hidden_layers=3, intermediate_size=28, moe_intermediate_size=12, n_routed_experts=8,
              num_experts_per_tok=3, first_k_dense_replace=1, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
              v_head_dim=8, num_key_value_heads=2)
PLAIN = {"rope_type": "default", "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 2.0, "beta_slow": 0.2, "mscale": 0.7, "mscale_all_dim": 0.9}
MODELS = {
    "mixtral": (transformers.MixtralForCausalLM, transformers.MixtralConfig(
        **dict(COMMON, num_attention_heads=4), num_key_value_heads=2, intermediate_size=14, num_local_experts=5,
        num_experts_per_tok=2, rope_parameters=PLAIN)),
    "deepseek_v2": (transformers.DeepseekV2ForCausalLM, transformers.DeepseekV2Config(
        **LATENT, q_lora_rank=None, n_shared_experts=2, topk_method="group_limited_greedy", n_group=4, topk_group=2,
        routed_scaling_factor=1.5, rope_parameters=PLAIN)),
    "deepseek_v3": (transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config(
        **LATENT, q_lora_rank=12, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
        norm_topk_prob=True, rope_parameters=YARN)),
    # The norms of the short vectors have 1e-6 whatever rms_norm_eps says: a large one shows it. The ramp of YaRN falls between
    # columns, and "truncate" says whether it may.
    "deepseek_v3_parts": (transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config(
        **dict(LATENT, rms_norm_eps=0.05, qk_rope_head_dim=8), q_lora_rank=12, n_shared_experts=1, n_group=1, topk_group=1,
        routed_scaling_factor=2.5, norm_topk_prob=True,
        rope_parameters={**YARN, "truncate": False, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 1.3, "beta_slow": 0.3})),
    "deepseek_v2_yarn": (transformers.DeepseekV2ForCausalLM, transformers.DeepseekV2Config(
        **dict(LATENT, rms_norm_eps=0.05, qk_rope_head_dim=8), q_lora_rank=12, n_shared_experts=2, topk_method="greedy",
        routed_scaling_factor=1.0, rope_parameters={k: v for k, v in YARN.items() if k != "mscale_all_dim"} | {"truncate": True})),
}


class FurtherTokens(torch.nn.Module):
    """A module of multi-token prediction (DeepSeek-V3, section 2.2), under the names of the published weights. The library
    has none: what it has is the block; norms, the two halves' order and the shared tables are written out here."""

    def __init__(self, config, layer):
        super().__init__()
        deepseek = transformers.models.deepseek_v3.modeling_deepseek_v3
        block = deepseek.DeepseekV3DecoderLayer(config, layer)
        for name, child in block.named_children():
            self.add_module(name, child)
        self.block = [block]  # not a child a second time
        norm = lambda: deepseek.DeepseekV3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.enorm, self.hnorm = norm(), norm()
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.shared_head = torch.nn.Module()
        self.shared_head.norm = norm()

    def forward(self, hidden, ahead, model):
        n = hidden.shape[1]
        x = self.eh_proj(torch.cat([self.enorm(model.embed_tokens(ahead)), self.hnorm(hidden)], -1))
        mask = torch.full((n, n), float("-inf"), dtype=hidden.dtype).triu(1)[None, None]
        places = torch.arange(n)[None]
        x = self.block[0](x, attention_mask=mask, position_ids=places, position_embeddings=model.rotary_emb(x, places))
        return self.shared_head.norm(x[0] if isinstance(x, tuple) else x)


class DeepseekV3Ahead(transformers.DeepseekV3ForCausalLM):
    """With modules behind the layers; each loss is over the tokens that the model's own is divided by, as in the paper."""
    WEIGHT = 0.7

    def __init__(self, config):
        super().__init__(config)
        for k in range(config.num_nextn_predict_layers):
            self.model.layers.append(FurtherTokens(config, config.num_hidden_layers + k))

    def forward(self, tokens):
        return super().forward(tokens)

    def further(self, tokens, targets):
        """The nats of each module, summed, and how many tokens they are of."""
        n, sums = tokens.shape[1], []
        hidden = self.model(tokens).last_hidden_state
        for k, module in enumerate(self.model.layers[self.config.num_hidden_layers:], 1):
            none = torch.zeros((tokens.shape[0], k), dtype=tokens.dtype)
            hidden = module(hidden, torch.cat([tokens[:, k:], none], 1), self.model)
            logits, after = self.lm_head(hidden)[:, :n - k].flatten(0, 1), targets[:, k:].flatten()
            nats = torch.nn.functional.cross_entropy(logits, after, ignore_index=-1, reduction="sum")
            sums.append((nats, int((after >= 0).sum())))
        return sums


MODELS["deepseek_v3_mtp"] = (DeepseekV3Ahead, transformers.DeepseekV3Config(
    **LATENT, q_lora_rank=12, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True,
    rope_parameters=YARN, num_nextn_predict_layers=2))


def randomize(model, g):
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name:
                continue
            x = torch.randn(p.shape, generator=g, dtype=torch.float64)
            gain = "norm" in name
            x = 1 + 0.1 * x if gain else (0.5 if "embed" in name or "lm_head" in name else 0.3) * x
            p.copy_(x.float().double())


def save(model, state, path):
    """Under the names that the library writes, in float32."""
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" not in name:
                p.copy_(state[name])
    model.float().save_pretrained(path)
    model.double()
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(path, extra)):
            os.remove(os.path.join(path, extra))


def make(name, kind, config, out):
    g = torch.Generator().manual_seed(11)
    torch.set_default_dtype(torch.float64)
    config._attn_implementation = config._experts_implementation = "eager"
    model = kind(config).double().eval()
    randomize(model, g)
    tokens = torch.randint(0, config.vocab_size, (2, 13), generator=g)
    targets = torch.randint(0, config.vocab_size, (2, 13), generator=g)
    targets[torch.rand(2, 13, generator=g) < 0.2] = -1
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    total, further = loss, []
    if isinstance(model, DeepseekV3Ahead):
        sums = model.further(tokens, targets)
        further = [(nats / trained).item() for nats, trained in sums]
        total = loss + model.WEIGHT / len(sums) * sum(nats for nats, _ in sums) / int((targets >= 0).sum())
    total.backward()
    buffers = {n: b.detach().clone() for n, b in model.named_buffers()}
    values = {**{n: p.detach().clone() for n, p in model.named_parameters()}, **buffers}
    grads = {**{n: p.grad.detach().clone() for n, p in model.named_parameters()},
             **{n: torch.zeros_like(b) for n, b in buffers.items()}}
    save(model, values, os.path.join(out, name))
    save(model, grads, os.path.join(out, name + ".grad"))
    with open(os.path.join(out, name + ".json"), "w") as f:
        more = {"mtp_loss": further, "mtp_weight": model.WEIGHT} if further else {}
        json.dump({"tokens": tokens.flatten().tolist(), "targets": targets.flatten().tolist(), "loss": loss.item(),
                   "trained": int((targets >= 0).sum()), **more,
                   "logits": [float(f"{x:.8g}") for x in logits.flatten().tolist()]}, f)
    print(name, "loss", loss.item())


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "experts"))
    a.add_argument("names", nargs="*", help="default: all")
    args = a.parse_args()
    out = args.out
    for name, (kind, config) in MODELS.items():
        if not args.names or name in args.names:
            make(name, kind, config, out)
