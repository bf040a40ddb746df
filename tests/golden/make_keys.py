# SPDX-License-Identifier: Apache-2.0
"""Makes tests/checkpoint/fixtures/library_keys.json: every key that the newest transformers and peft write or read of a file, with what
it does there, against which tests/hub/test_hf_library.c holds tutti's tables of keys (src/hub/hf_keys.c, hf_beside.c,
peft_keys.c).

    python3 make_keys.py [--out FILE] [FAMILY...]

Of each family of ours: "written", a whole config.json of a tiny model by the library's own config class, and of every key of it, and of
every name that the class takes from a file or the model's code reads of the config beside these, an effect that was measured: the key is
given other values, and the model computes logits again from the same weights.

    numbers   the logits are others            shape    the weights no longer fit, so other weights are wanted
    none      the logits are the same bits     rounding they are the same but for rounding
    error     the library does not compute with any of the values that were tried

"absent" is what the class takes for a key that the file leaves out, where that is another value than the one written.

Of generation_config.json, tokenizer_config.json and adapter_config.json: the names, with the values of a config that says nothing. Of
peft's ways to begin an adapter: whether loading one changes the base.

Development only: the tests read the stored file and need no Python. Some minutes. Wants torch, transformers and peft.
"""
import argparse
import ast
import copy
import dataclasses
import inspect
import json
import os
import re
import sys
import textwrap
import warnings

import peft
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from make_families import HYBRID, OSS, SIZES, SPACES

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity(50)
VOCAB, B, S = 31, 2, 19
COMMON = {k: v for k, v in SIZES.items() if k not in ("rope_theta", "attention_dropout")}
GEMMA = dict(COMMON, head_dim=6, query_pre_attn_scalar=9, tie_word_embeddings=True, sliding_window=4, num_hidden_layers=4)
DEEPSEEK = dict(COMMON, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=7, first_k_dense_replace=1, n_group=2,
                topk_group=1, q_lora_rank=9, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=5, num_key_value_heads=4)
TOWER = dict(hidden_size=15, intermediate_size=22, num_hidden_layers=3, num_attention_heads=3, image_size=6, patch_size=3)
LLAVA_TEXT = dict(COMMON, model_type="llama", head_dim=6)
OF = {
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=VOCAB, n_embd=16, n_layer=3, n_head=4, n_positions=48)),
    "llama": ("LlamaForCausalLM", dict(COMMON, head_dim=6)),
    "mixtral": ("MixtralForCausalLM", dict(COMMON, num_local_experts=5, head_dim=6)),
    "deepseek_v2": ("DeepseekV2ForCausalLM", dict(DEEPSEEK, topk_method="group_limited_greedy")),
    "deepseek_v3": ("DeepseekV3ForCausalLM", DEEPSEEK),
    "vit": ("ViTForImageClassification", dict(TOWER, num_labels=5)),
    "bert": ("BertForMaskedLM", dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=22, num_hidden_layers=3,
                                     num_attention_heads=4, max_position_embeddings=48)),
    "mistral": ("MistralForCausalLM", dict(COMMON, head_dim=6, sliding_window=5)),
    "qwen2": ("Qwen2ForCausalLM", dict(COMMON, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen3": ("Qwen3ForCausalLM", dict(COMMON, head_dim=6, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen3_moe": ("Qwen3MoeForCausalLM", dict(COMMON, head_dim=6, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=7)),
    "smollm3": ("SmolLM3ForCausalLM", dict(COMMON, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=6,
                                           layer_types=["sliding_attention", "full_attention", "full_attention"])),
    "olmo2": ("Olmo2ForCausalLM", COMMON),
    "phi3": ("Phi3ForCausalLM", dict(COMMON, sliding_window=7)),
    "gemma2": ("Gemma2ForCausalLM", dict(GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3_text": ("Gemma3ForCausalLM", dict(GEMMA, layer_types=["sliding_attention", "full_attention"] * 2)),
    "gpt_oss": ("GptOssForCausalLM", dict({k: v for k, v in OSS.items() if k in COMMON or k in ("head_dim", "sliding_window")},
                                          num_experts_per_tok=2, num_local_experts=5, intermediate_size=14)),
    "mamba2": ("Mamba2ForCausalLM", dict(SPACES, n_groups=3)),
    "llava": ("LlavaForConditionalGeneration", dict(
        text_config=LLAVA_TEXT, vision_config=dict(TOWER, model_type="clip_vision_model", projection_dim=8), image_token_index=30)),
    "nemotron_h": ("NemotronHForCausalLM", dict({k: v for k, v in HYBRID.items() if k != "attention_dropout"}, n_groups=3,
                   layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"])),
    "t5": ("T5ForConditionalGeneration", dict(vocab_size=VOCAB, d_model=16, d_kv=5, d_ff=11, num_layers=2, num_decoder_layers=3,
                                              num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=9,
                                              decoder_start_token_id=0)),
}
# Objects in LLaVA's file, and the model that is asked about their keys.
INSIDE = {"clip_vision_model": dict(TOWER, projection_dim=8), "siglip_vision_model": dict(TOWER, vision_use_head=False)}
WORDS = ["gelu", "relu", "silu", "gelu_pytorch_tanh", "relu2", "quick_gelu", "gated-gelu", "greedy", "group_limited_greedy", "noaux_tc",
         "full", "default", "absolute", "relative_key", "softmax", "sigmoid", "sequence"]
# Names that say how the library runs a model, or that are methods of the config, not members of a file.
NOT_OF_FILES = {"get_text_config", "to_dict", "to_diff_dict", "_attn_implementation", "_attn_implementation_internal",
                "_experts_implementation", "_experts_implementation_internal", "_output_attentions", "transformers_version",
                "convert_rope_params_to_dict", "standardize_rope_params", "validate_rope", "_post_init_done", "rope_scaling",
                "sub_configs", "sub_configs_defaults", "attribute_map", "base_model_tp_plan", "architectures", "model_type",
                "_name_or_path", "name_or_path", "dtype", "torch_dtype", "base_config_key", "__class__", "update", "layers_type"}


def plain(x):
    return json.loads(json.dumps(x, default=str))


def written_by(config):
    """What the class writes, whole; infinities as its own files have them."""
    out = plain(config.to_dict())
    for k in ("_name_or_path", "transformers_version"):
        out.pop(k, None)
    return out


def make_config(kind, written):
    cls = CONFIG_MAPPING[kind]
    return cls(**copy.deepcopy({k: v for k, v in written.items() if k not in ("model_type", "architectures")}))


def build(name, kind, written):
    """The model of a config, in float64; its weights do not matter yet."""
    if kind in INSIDE:
        outer = dict(OF["llava"][1], vision_config=dict(written, model_type=kind))
        if kind == "siglip_vision_model":
            outer.update(vision_feature_layer=-1, vision_feature_select_strategy="full")
        kind, written = "llava", outer
    config = make_config(kind, written)
    config._attn_implementation, config._experts_implementation = "eager", "eager"
    return getattr(transformers, name)(config).double().eval()


def draw(model):
    g = torch.Generator().manual_seed(7)
    state = {}
    for name, p in model.state_dict().items():
        if p.dtype != torch.float64:
            state[name] = p.clone()
            continue
        x = torch.randn(p.shape, generator=g, dtype=torch.float64)
        state[name] = 1 + 0.1 * x if "norm" in name and name.endswith("weight") else 0.4 * x
    return state


def inputs_of(model, kind):
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(2, VOCAB - 1, (B, S), generator=g)
    if kind == "vit":
        return {"pixel_values": torch.randn(B, model.config.num_channels, 6, 6, generator=g, dtype=torch.float64)}
    if kind in ("llava", *INSIDE):
        ids[:, 2:6] = 30
        return {"input_ids": ids, "pixel_values": torch.randn(B, 3, 6, 6, generator=g, dtype=torch.float64)}
    if kind == "t5":
        return {"input_ids": ids, "decoder_input_ids": ids[:, :11]}
    return {"input_ids": ids}


def logits_of(model, kind):
    with torch.no_grad():
        out = model(**inputs_of(model, kind), use_cache=False) if kind != "vit" else model(**inputs_of(model, kind))
    return (out.logits if hasattr(out, "logits") else out[0]).double()


def others(v):
    """Other values that a key may have."""
    if isinstance(v, bool):
        return [not v]
    if isinstance(v, int):
        return [v + 1, v * 2, max(v - 1, 0), 1, v // 2]
    if isinstance(v, float):
        return [v * 2 + 0.25, 0.5, v / 2, 1.5]
    if isinstance(v, str):
        return [w for w in WORDS if w != v]
    if v is None:
        return [True, 1, 2, 4, 0.5, "gelu", "sigmoid", [1], {}]
    if isinstance(v, list):
        changed = [v[::-1]] if v[::-1] != v else []
        if v and isinstance(v[0], (int, float)):
            changed += [[x + 1 for x in v], [1 - x for x in v], [x / 2 + 0.1 for x in v]]
        if v and isinstance(v[0], str):
            changed += [[x] * len(v) for x in sorted(set(v))] + [[w] * len(v) for w in ("sliding_attention", "full_attention")]
        return changed or [[0], [1]]
    if isinstance(v, dict):
        base = dict(v)
        return [dict(base, rope_theta=77.0), {**{k: dict(x, rope_theta=77.0) for k, x in v.items() if isinstance(x, dict)}}, {"0": "a"}]
    return []


EFFECTS = ("numbers", "shape", "rounding", "none", "error")


def effect_of(name, kind, written, key, value, state, want):
    seen = set()
    for other in others(value):
        try:
            model = build(name, kind, dict(written, **{key: other}))
        except Exception:
            continue
        now = model.state_dict()
        if set(now) != set(state) or any(now[k].shape != state[k].shape for k in now):
            seen.add("shape")
            continue
        model.load_state_dict(state, assign=False)
        try:
            got = logits_of(model, kind)
        except Exception:
            continue
        same = got.shape == want.shape
        seen.add("none" if same and torch.equal(got, want) else "rounding" if same and torch.allclose(got, want, 1e-4, 1e-5) else "numbers")
    for e in EFFECTS:
        if e in seen:
            return e
    return "error"


def asked_for(tree, of):
    """The constants in of.pop("name"), of.get("name") and of["name"]."""
    names = set()
    for n in ast.walk(tree):
        name = None
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("pop", "get", "setdefault") and n.args \
                and isinstance(n.func.value, ast.Name) and n.func.value.id in of:
            name = n.args[0]
        if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id in of:
            name = n.slice
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            names.add(name.value)
    return names


def taken(cls):
    """Names that the class takes out of what a file says beside its fields."""
    names = set()
    for c in cls.__mro__:
        if not issubclass(c, transformers.PreTrainedConfig):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(c)))
        except (OSError, TypeError, SyntaxError):
            continue
        for f in ast.walk(tree):
            if isinstance(f, ast.FunctionDef) and (f.name in ("__init__", "__post_init__") or "rope" in f.name):
                names |= asked_for(f, ("kwargs",))
        names |= set(getattr(c, "attribute_map", {}))
    return names


def read_by_code(model):
    """Members of the config that the file of the model's code names."""
    text = inspect.getsource(sys.modules[type(model).__module__])
    names = set(re.findall(r"\bconfig\.([a-z_]\w*)", text))
    names |= set(re.findall(r"getattr\((?:self\.)?config, ?\"(\w+)\"", text))
    return {n for n in names if not n.startswith("__")}


def absent_of(kind, written):
    out = {}
    for key in written:
        if key in NOT_OF_FILES or key in ("text_config", "vision_config"):
            continue
        try:
            value = written_by(make_config(kind, {k: v for k, v in written.items() if k != key})).get(key)
        except Exception:
            continue
        if value != written[key]:
            out[key] = value
    return out


def of_family(kind):
    inside = kind in INSIDE
    name, said = OF["llava" if inside else kind][0], INSIDE[kind] if inside else OF[kind][1]
    config = CONFIG_MAPPING[kind](**copy.deepcopy(said))
    written = written_by(config)
    if not inside:
        written["architectures"] = [name]
    for k in ("text_config", "vision_config"):
        if isinstance(written.get(k), dict):
            written[k] = {a: b for a, b in written[k].items() if a not in ("_name_or_path", "transformers_version")}
    model = build(name, kind, written)
    state = draw(model)
    model.load_state_dict(state)
    want = logits_of(model, kind)
    assert torch.isfinite(want).all(), kind
    fields = {f.name for f in dataclasses.fields(CONFIG_MAPPING[kind])}
    beside = sorted((taken(CONFIG_MAPPING[kind]) | fields | (set() if inside else read_by_code(model))) - set(written) - NOT_OF_FILES)
    beside = [k for k in beside if not callable(getattr(type(config), k, None))]
    effects = {}
    for key in list(written) + beside:
        if key in NOT_OF_FILES or key in ("text_config", "vision_config"):
            continue
        value = written[key] if key in written else getattr(config, key, None)
        effects[key] = effect_of(name, kind, written, key, plain(value), state, want)
    return {"written": written, "absent": absent_of(kind, written), **{e: [k for k in effects if effects[k] == e] for e in EFFECTS}}


# ---- other files ----
def of_generation():
    return plain({k: v for k, v in transformers.GenerationConfig().to_dict().items() if k != "transformers_version"})


def of_tokenizers():
    """Names that the classes of our families' tokenizers take from tokenizer_config.json, and those that the common classes do."""
    names = set()
    from transformers import tokenization_utils_base, tokenization_utils_tokenizers
    classes = [tokenization_utils_base.PreTrainedTokenizerBase, tokenization_utils_tokenizers.TokenizersBackend]
    for kind in ("GPT2", "Llama", "Qwen2", "Gemma", "T5", "Bert", "CodeLlama", "GPTNeoX", "Cohere"):
        c = getattr(transformers, kind + "Tokenizer", None)
        classes += [c] if c else []
    for c in classes:
        for k, p in inspect.signature(c.__init__).parameters.items():
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and k != "self":
                names.add(k)
        tree = ast.parse(inspect.getsource(inspect.getmodule(c)))
        names |= asked_for(tree, ("init_kwargs", "tokenizer_config"))
        for f in ast.walk(tree):
            if isinstance(f, ast.FunctionDef) and f.name in ("__init__", "__post_init__"):
                names |= asked_for(f, ("kwargs",))
    return sorted(names)


def of_peft():
    kinds = {}
    for kind, cls in sorted(peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING.items()):
        kinds[kind.value] = sorted(f.name for f in dataclasses.fields(cls))
    lora = plain(peft.LoraConfig(r=4, target_modules=["q_proj"]).to_dict())
    return {"kinds": kinds, "lora": lora, "begin": begins()}


def begins():
    """Of each way to begin, whether the base beneath a fresh adapter is another one."""
    said = CONFIG_MAPPING["llama"](**OF["llama"][1])
    out = {}
    for how in (True, False, "gaussian", "eva", "olora", "pissa", "pissa_niter_4", "corda", "loftq", "orthogonal", "mica", "lora_ga"):
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(said).eval()
        before = {k: v.clone() for k, v in model.state_dict().items()}
        more = {"loftq_config": {"loftq_bits": 4}} if how == "loftq" else {}
        try:
            inside = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=how, **more))
        except Exception as x:
            out[str(how).lower()] = "error: " + type(x).__name__
            continue
        now = {k.replace("base_model.model.", "").replace(".base_layer", ""): v for k, v in inside.state_dict().items()}
        same = all(torch.equal(v, now[k]) for k, v in before.items())
        out[str(how).lower()] = "same base" if same else "another base"
    return out


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    args.add_argument("--out", default=os.path.join(here, "../checkpoint/fixtures/library_keys.json"))
    args.add_argument("families", nargs="*")
    args = args.parse_args()
    torch.set_num_threads(1)
    families = {}
    for kind in args.families or [*OF, *INSIDE]:
        families[kind] = of_family(kind)
        print(kind, {e: len(families[kind][e]) for e in EFFECTS}, flush=True)
    text = json.dumps({"transformers": transformers.__version__, "peft": peft.__version__}, indent=1)[:-2] + ",\n \"families\": {\n"
    text += ",\n".join(f'  "{k}": {{\n   ' + ",\n   ".join(f'"{a}": {json.dumps(b)}' for a, b in v.items()) + "}"
                       for k, v in families.items())
    text += "\n },\n \"generation\": " + json.dumps(of_generation()) + ",\n \"tokenizer\": " + json.dumps(of_tokenizers())
    text += ",\n \"adapter\": {\n  " + ",\n  ".join(f'"{a}": {json.dumps(b)}' for a, b in of_peft().items()) + "}\n}\n"
    json.loads(text)
    with open(args.out, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
