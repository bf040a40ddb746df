/* SPDX-License-Identifier: Apache-2.0 */
/* hf_keys.c: the table of keys of config.json.
 *
 * The list is of what is known, not of what is bad: models gain new keys all the time (a sliding window, a norm of queries, a
 * multiplier), and one that is passed over gives another model with a loss that looks plausible. So a key that is not here is
 * refused, until somebody has looked at it and either adds it or names it in model.ignore.
 *
 * "Harmless" means: whatever its value, the logits of this architecture are the same. Dropouts and the weights of balance
 * losses are of this kind, since how to train is said by tutti's own config (model.dropout, model.moe.aux).
 */
#include "checkpoint/hf_keys.h"

#include <string.h>

enum rule {
    READ,     /* hf_config.c does */
    HARMLESS, /* any value */
    FALSE_, TRUE_, NULL_, ONE, ZERO, TEXT, EMPTY /* this value only, or null */
};

enum {
    G = 1 << HF_GPT2, L = 1 << HF_LLAMA, M = 1 << HF_MIXTRAL, D2 = 1 << HF_DEEPSEEK_V2, D3 = 1 << HF_DEEPSEEK_V3,
    D = D2 | D3, R = L | M | D, ALL = G | R /* R: those with rotary positions */
};

struct key {
    const char *name;
    unsigned families;
    enum rule rule;
    const char *text; /* TEXT: the values that are computed, separated by "|" */
};

static const struct key keys[] = {
    {"model_type", ALL, READ, NULL},
    {"vocab_size", ALL, READ, NULL},
    {"initializer_range", ALL, READ, NULL},
    {"tie_word_embeddings", ALL, READ, NULL},
    {"bos_token_id", ALL, READ, NULL},
    {"eos_token_id", ALL, READ, NULL},
    {"tutti_group_pairs", ALL, READ, NULL},
    {"tutti_latent_norm_eps", ALL, READ, NULL},

    {"n_embd", G, READ, NULL},
    {"n_layer", G, READ, NULL},
    {"n_head", G, READ, NULL},
    {"n_positions", G, READ, NULL},
    {"n_inner", G, READ, NULL},
    {"layer_norm_epsilon", G, READ, NULL},
    {"resid_pdrop", G, READ, NULL},
    {"embd_pdrop", G, READ, NULL},
    {"attn_pdrop", G, READ, NULL},
    {"n_ctx", G, HARMLESS, NULL}, /* n_positions under an older name; nothing reads it */
    {"activation_function", G, TEXT, "gelu_new|gelu_pytorch_tanh"},
    {"scale_attn_weights", G, TRUE_, NULL},
    {"scale_attn_by_inverse_layer_idx", G, FALSE_, NULL},
    {"reorder_and_upcast_attn", G, HARMLESS, NULL}, /* rounding only; tutti's scores are fp32 anyway */
    {"summary_activation", G, HARMLESS, NULL},      /* of a classifier on top */
    {"summary_first_dropout", G, HARMLESS, NULL},
    {"summary_proj_to_labels", G, HARMLESS, NULL},
    {"summary_type", G, HARMLESS, NULL},
    {"summary_use_proj", G, HARMLESS, NULL},
    {"predict_special_tokens", G, HARMLESS, NULL},

    {"hidden_size", R, READ, NULL},
    {"num_hidden_layers", R, READ, NULL},
    {"num_attention_heads", R, READ, NULL},
    {"num_key_value_heads", R, READ, NULL},
    {"intermediate_size", R, READ, NULL},
    {"max_position_embeddings", R, READ, NULL},
    {"head_dim", R, READ, NULL},
    {"rms_norm_eps", R, READ, NULL},
    {"attention_dropout", R, READ, NULL},
    {"rope_theta", R, READ, NULL},
    {"rope_scaling", R, READ, NULL},
    {"rope_parameters", R, READ, NULL},
    {"hidden_act", R, TEXT, "silu|swish"},
    {"attention_bias", R, FALSE_, NULL},
    {"mlp_bias", R, FALSE_, NULL},
    {"sliding_window", R, NULL_, NULL},
    {"partial_rotary_factor", R, ONE, NULL},
    {"pretraining_tp", R, HARMLESS, NULL}, /* products cut into pieces, summed in another order */
    {"max_sequence_length", L, HARMLESS, NULL}, /* early Llama files, beside max_position_embeddings */

    {"num_local_experts", M, READ, NULL},
    {"num_experts_per_tok", M | D, READ, NULL},
    {"router_jitter_noise", M, ZERO, NULL},
    {"router_aux_loss_coef", M, HARMLESS, NULL},
    {"output_router_logits", M | D, FALSE_, NULL},

    {"n_routed_experts", D, READ, NULL},
    {"n_shared_experts", D, READ, NULL},
    {"moe_intermediate_size", D, READ, NULL},
    {"first_k_dense_replace", D, READ, NULL},
    {"routed_scaling_factor", D, READ, NULL},
    {"norm_topk_prob", D, READ, NULL},
    {"n_group", D, READ, NULL},
    {"topk_group", D, READ, NULL},
    {"q_lora_rank", D, READ, NULL},
    {"kv_lora_rank", D, READ, NULL},
    {"qk_nope_head_dim", D, READ, NULL},
    {"qk_rope_head_dim", D, READ, NULL},
    {"v_head_dim", D, READ, NULL},
    {"rope_interleave", D3, READ, NULL},
    {"moe_layer_freq", D, ONE, NULL},
    {"scoring_func", D, TEXT, "softmax|sigmoid"},
    {"topk_method", D, TEXT, "greedy|group_limited_greedy|noaux_tc"},
    {"qk_head_dim", D, HARMLESS, NULL}, /* the sum of two that are read */
    {"aux_loss_alpha", D, HARMLESS, NULL},
    {"seq_aux", D, HARMLESS, NULL},
    {"ep_size", D, HARMLESS, NULL},
    {"num_nextn_predict_layers", D3, HARMLESS, NULL}, /* a head beside the model, for drafting */
    {"num_mtp_layers", D3, HARMLESS, NULL},

    {"quantization_config", ALL, NULL_, NULL},
    {"is_encoder_decoder", ALL, FALSE_, NULL},
    {"tie_encoder_decoder", ALL, FALSE_, NULL},
    {"add_cross_attention", ALL, FALSE_, NULL},
    {"cross_attention_hidden_size", ALL, NULL_, NULL},
    {"pruned_heads", ALL, EMPTY, NULL},
};

/* Names and labels, generation, how the library runs it: of no concern to the numbers of the model. */
static const char *const harmless[] = {
    "architectures", "torch_dtype", "dtype", "transformers_version", "use_cache", "_name_or_path", "name_or_path", "auto_map",
    "tokenizer_class", "_commit_hash", "_attn_implementation", "attn_implementation", "_attn_implementation_autoset",
    "_experts_implementation", "_flash_attn_2_enabled", "unsloth_version", "unsloth_fixed", "gradient_checkpointing", "torchscript", "tf_legacy_loss",
    "use_bfloat16", "return_dict", "output_hidden_states", "output_attentions", "output_past", "chunk_size_feed_forward", "is_decoder",
    "pad_token_id", "sep_token_id", "unk_token_id", "cls_token_id", "mask_token_id", "decoder_start_token_id", "bos_token", "eos_token", "pad_token",
    "model_max_length", "id2label", "label2id", "num_labels", "_num_labels", "n_special", "finetuning_task", "problem_type", "task_specific_params", "prefix",
    "max_length", "max_new_tokens", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature",
    "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
};

static bool listed(const char *value, const char *choices)
{
    size_t n = strlen(value);
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (strncmp(c, value, n) == 0 && (c[n] == 0 || c[n] == '|')) return true;
    return false;
}

static bool is_ignored(const struct hf_ignore *ignore, const char *name)
{
    for (int i = 0; ignore && i < ignore->n; i++)
        if (strcmp(ignore->keys[i], name) == 0) return true;
    return false;
}

static void print_value(struct str *s, const struct json *v)
{
    switch (json_kind(v)) {
    case JSON_NULL: str_puts(s, "null"); break;
    case JSON_BOOL: str_puts(s, json_bool(v, false) ? "true" : "false"); break;
    case JSON_INT: str_printf(s, "%lld", (long long)json_int(v, 0)); break;
    case JSON_REAL: str_printf(s, "%.9g", json_real(v, 0)); break;
    case JSON_STRING: str_printf(s, "\"%.60s\"", json_string(v, NULL, "")); break;
    case JSON_ARRAY: str_printf(s, "a list of %zu", json_size(v)); break;
    case JSON_OBJECT: str_printf(s, "an object of %zu", json_size(v)); break;
    }
}

static bool fits(const struct key *k, const struct json *v)
{
    enum json_kind kind = json_kind(v);
    switch (k->rule) {
    case READ:
    case HARMLESS: return true;
    case FALSE_: return kind == JSON_BOOL && !json_bool(v, true);
    case TRUE_: return json_bool(v, false);
    case NULL_: return false;
    case ONE: return json_real(v, 0) == 1;
    case ZERO: return json_real(v, 1) == 0;
    case TEXT: return listed(json_string(v, NULL, "?"), k->text);
    case EMPTY: return (kind == JSON_OBJECT || kind == JSON_ARRAY) && json_size(v) == 0;
    }
    return false;
}

static const char *wanted(const struct key *k)
{
    static const char *const values[] = {[FALSE_] = "false", [TRUE_] = "true", [NULL_] = "null", [ONE] = "1", [ZERO] = "0", [EMPTY] = "{}"};
    return k->rule == TEXT ? k->text : values[k->rule];
}

/* k: the key's row, NULL when there is none. */
static int refuse(const struct key *k, const char *name, const struct json *v, const char *what, struct err *e)
{
    struct str value = {0};
    print_value(&value, v);
    int rc;
    if (k)
        rc = err_set(e, ERR_REQUEST,
                     "%s: %s is %s: tutti computes this model only with %s here; with another value it would be another model "
                     "(model.ignore: [%s] takes it as if the key were not there)",
                     what, name, str_text(&value), wanted(k), name);
    else
        rc = err_set(e, ERR_REQUEST,
                     "%s: %s is %s: tutti does not know this key, which may change what the model computes; if it does not, "
                     "model.ignore: [%s] says so",
                     what, name, str_text(&value), name);
    str_free(&value);
    return rc;
}

static const struct key *find(enum hf_family family, const char *name)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].families >> family & 1 && strcmp(keys[i].name, name) == 0) return &keys[i];
    return NULL;
}

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], name) == 0) return true;
    return false;
}

int hf_keys_check(enum hf_family family, const struct json *config, const struct hf_ignore *ignore, const char *what,
                  struct err *e)
{
    for (void *it = json_iter(config); it; it = json_iter_next(config, it)) {
        const char *name = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        const struct key *k = find(family, name);
        if (json_kind(v) == JSON_NULL || (k ? fits(k, v) : is_harmless(name)) || is_ignored(ignore, name)) continue;
        return refuse(k, name, v, what, e);
    }
    return OK;
}

int hf_keys_check_rope(const struct json *rope, const char *key, const char *type, const struct hf_ignore *ignore,
                       const char *what, struct err *e)
{
    static const struct {
        const char *name, *types;
    } members[] = {
        {"type", "default|llama3|yarn"}, {"rope_type", "default|llama3|yarn"}, {"rope_theta", "default|llama3|yarn"},
        {"factor", "llama3|yarn"}, {"original_max_position_embeddings", "llama3|yarn"}, {"low_freq_factor", "llama3"},
        {"high_freq_factor", "llama3"}, {"beta_fast", "yarn"}, {"beta_slow", "yarn"}, {"mscale", "yarn"}, {"mscale_all_dim", "yarn"},
        {"truncate", "yarn"},
    };
    static const struct key whole_turn = {"partial_rotary_factor", R, ONE, NULL}, given = {"attention_factor", R, NULL_, NULL};
    for (void *it = json_iter(rope); it; it = json_iter_next(rope, it)) {
        const char *name = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        const struct key *k = strcmp(name, whole_turn.name) == 0 ? &whole_turn : strcmp(name, given.name) == 0 ? &given : NULL;
        bool known = k && fits(k, v);
        for (size_t i = 0; i < sizeof members / sizeof *members; i++)
            known = known || (strcmp(name, members[i].name) == 0 && listed(type, members[i].types));
        if (known || json_kind(v) == JSON_NULL) continue;
        struct str path = {0};
        str_printf(&path, "%s.%s", key, name);
        int rc = is_ignored(ignore, path.p) ? OK : refuse(k, path.p, v, what, e);
        str_free(&path);
        if (rc) return rc;
    }
    return OK;
}
