/* SPDX-License-Identifier: Apache-2.0 */
/* hf_keys.c: the table of keys of config.json that are no numbers of the model: those are in the table of numbers
 * (model/numbers.def), and known from there.
 *
 * The list is of what is known, not of what is bad: models gain new keys all the time (a sliding window, a norm of
 * queries, a multiplier), and one that is passed over gives another model with a loss that looks plausible. So a key
 * that is not here is refused, until somebody has looked at it and either adds it or names it in model.ignore.
 *
 * "Harmless" means: whatever its value, the logits of this architecture are the same. Dropouts and the weights of
 * balance losses are of this kind, since how to train is said by tutti's own config (model.dropout, model.moe.aux).
 */
#include "hub/hf_keys.h"
#include "hub/hf_own.h"

#include <stdio.h>
#include <string.h>

#include "model/family_letters.h"

enum rule {
    READ,     /* hf_config.c does, apart from the numbers */
    HARMLESS, /* any value */
    FALSE_,
    TRUE_,
    NULL_,
    ONE,
    ZERO,
    TEXT,
    SLOPE,
    EMPTY /* this value only, or null */
};

struct key {
    const char *name;
    unsigned families;
    enum rule rule;
    const char *text; /* TEXT: the values that are computed, separated by "|" */
    int at;           /* its place among the keys that are written (model/numbers.h); 0: it is not written */
};

static const struct key keys[] = {
    {"model_type", ALL, READ, NULL, 0},
    {"bos_token_id", ALL, READ, NULL, 0},
    {"eos_token_id", ALL, READ, NULL, 0},
    {"id2label", V | B, READ, NULL, 0}, /* how many there are */

    {"position_embedding_type", B, TEXT, "absolute", 18},
    {"is_decoder", B | T, FALSE_, NULL, 0},
    {"classifier_dropout", B, HARMLESS, NULL, 0},
    {"directionality", B, HARMLESS, NULL, 0}, /* what the files of some carry along; nothing reads them */
    {"pooler_fc_size", B, HARMLESS, NULL, 0},
    {"pooler_num_attention_heads", B, HARMLESS, NULL, 0},
    {"pooler_num_fc_layers", B, HARMLESS, NULL, 0},
    {"pooler_size_per_head", B, HARMLESS, NULL, 0},
    {"pooler_type", B, HARMLESS, NULL, 0},

    {"num_decoder_layers", T, READ, NULL, 0},
    {"is_encoder_decoder", T, TRUE_, NULL, 22},
    {"is_gated_act", T, READ, NULL, 0}, /* what feed_forward_proj says, or another model */
    {"dense_act_fn", T, READ, NULL, 0},
    {"initializer_factor", T, HARMLESS, NULL, 0},
    {"classifier_dropout", T, HARMLESS, NULL, 0},
    {"decoder_start_token_id", T, READ, NULL, 0},
    {"n_positions", T, HARMLESS, NULL, 0}, /* nothing reads it */
    {"output_past", T, HARMLESS, NULL, 0},
    {"scale_decoder_outputs", T, READ, NULL, 0}, /* newer files, whose tie_word_embeddings says nothing */

    {"encoder_stride", V, HARMLESS, NULL, 0},     /* of a head that draws pictures */
    {"pooler_output_size", V, HARMLESS, NULL, 0}, /* of a head that classifiers leave out */
    {"pooler_act", V, HARMLESS, NULL, 0},

    {"activation_function", G, TEXT, "gelu_new|gelu_pytorch_tanh", 20},
    {"scale_attn_weights", G, TRUE_, NULL, 0},
    {"scale_attn_by_inverse_layer_idx", G, FALSE_, NULL, 0},
    {"reorder_and_upcast_attn", G, HARMLESS, NULL, 0}, /* rounding only; tutti's scores are fp32 anyway */
    {"summary_activation", G, HARMLESS, NULL, 0},      /* of a classifier on top */
    {"summary_first_dropout", G, HARMLESS, NULL, 0},
    {"summary_proj_to_labels", G, HARMLESS, NULL, 0},
    {"summary_type", G, HARMLESS, NULL, 0},
    {"summary_use_proj", G, HARMLESS, NULL, 0},
    {"predict_special_tokens", G, HARMLESS, NULL, 0},

    {HF_OWN, R | LV, READ, NULL, 0},
    {"rope_scaling", R | LV, READ, NULL, 0},
    {"rope_parameters", R | LV, READ, NULL, 0},
    {"attention_bias", M | D, FALSE_, NULL, 120},
    {"attention_bias", MI | Q2 | PH, FALSE_, NULL, 0},
    {"mlp_bias", M | D, FALSE_, NULL, 130},
    {"mlp_bias", R, FALSE_, NULL, 0},
    {"sliding_window", R, NULL_, NULL, 0},

    /* which layers are what: hf_layers.c */
    {"layer_types", W, READ, NULL, 0},
    {"use_sliding_window", Q | SM, READ, NULL, 0},
    {"max_window_layers", Q | SM, READ, NULL, 0},
    {"use_mrope", Q2, FALSE_, NULL, 0},
    {"sliding_window_pattern", G3, READ, NULL, 0},
    {"_sliding_window_pattern", G3, READ, NULL, 0},
    {"no_rope_layers", SM, READ, NULL, 0},
    {"no_rope_layer_interval", SM, READ, NULL, 0},
    {"qkv_bias", Q3 | QM, FALSE_, NULL, 0}, /* Qwen3-Coder's; nothing reads them */
    {"use_qk_norm", Q3 | QM, TRUE_, NULL, 0},
    {"shared_expert_intermediate_size", QM, ZERO, NULL, 0},
    {"mlp_only_layers", QM, READ, NULL, 0},
    {"decoder_sparse_step", QM, READ, NULL, 0},

    {"attn_logit_softcapping", G3, HARMLESS, NULL, 0}, /* their class has it and their code does not apply it */
    {"cache_implementation", GM, HARMLESS, NULL, 0},
    {"use_bidirectional_attention", GM, FALSE_, NULL, 0},
    {"hidden_act", GM, HARMLESS, NULL, 0},                   /* their code reads another key */
    {"original_max_position_embeddings", PH, READ, NULL, 0}, /* of longrope: hf_rope.c */
    {"full_attn_mod", PH, ONE, NULL, 0},                     /* Phi-4-mini's; the library reads none of them */
    {"interpolate_factor", PH, ONE, NULL, 0},
    {"lm_head_bias", PH, FALSE_, NULL, 0},
    {"hidden_act", GO, HARMLESS, NULL, 0}, /* their gate is its own, whatever this says */
    {"swiglu_alpha", GO, SLOPE, NULL, 0},
    {"initial_context_length", GO, HARMLESS, NULL, 0}, /* older names of what is read */
    {"experts_per_token", GO, HARMLESS, NULL, 0},
    {"rope_interleaved", SM, FALSE_, NULL, 0},
    {"partial_rotary_factor", (R & ~PH) | LV, ONE, NULL, 0},
    {"pretraining_tp", R | LV, HARMLESS, NULL, 0},      /* products cut into pieces, summed in another order */
    {"max_sequence_length", L | LV, HARMLESS, NULL, 0}, /* early Llama files, beside max_position_embeddings */

    {"router_jitter_noise", M, ZERO, NULL, 0},
    {"router_aux_loss_coef", M | QM | GO, HARMLESS, NULL, 0},
    {"output_router_logits", M | D | QM | GO, FALSE_, NULL, 0},

    {"moe_layer_freq", D, ONE, NULL, 250},
    {"topk_method", D, TEXT, "greedy|group_limited_greedy|noaux_tc", 0},
    {"qk_head_dim", D, HARMLESS, NULL, 0}, /* the sum of two that are read */
    {"aux_loss_alpha", D, HARMLESS, NULL, 0},
    {"seq_aux", D, HARMLESS, NULL, 0},
    {"ep_size", D, HARMLESS, NULL, 0},
    {"num_mtp_layers", D3, HARMLESS, NULL, 0},

    {"model_type", IN_LLAVA | IN_TOWER, READ, NULL, 0},
    {"text_config", IN_LLAVA, READ, NULL, 0},
    {"vision_config", IN_LLAVA, READ, NULL, 0},
    {"vision_feature_layer", IN_LLAVA, READ, NULL, 0},
    {"vision_feature_select_strategy", IN_LLAVA, READ, NULL, 0},
    {"projector_hidden_act", IN_LLAVA, TEXT, "gelu", 906},
    {"multimodal_projector_bias", IN_LLAVA, TRUE_, NULL, 907},
    {"tie_word_embeddings", IN_LLAVA, READ, NULL, 0},
    {"image_seq_length", IN_LLAVA, HARMLESS, NULL, 0}, /* what the tower's sizes say */
    {"ignore_index", IN_LLAVA, HARMLESS, NULL, 0},
    {"vocab_size", IN_LLAVA | IN_TOWER, HARMLESS, NULL, 0}, /* older files; nothing reads it */
    {"bos_token_id", IN_LLAVA, HARMLESS, NULL, 0},          /* the text's are read */
    {"eos_token_id", IN_LLAVA, HARMLESS, NULL, 0},
    {"quantization_config", IN_LLAVA | IN_TOWER, NULL_, NULL, 0},
    {"is_encoder_decoder", IN_LLAVA | IN_TOWER, FALSE_, NULL, 0},
    {"projection_dim", IN_TOWER, HARMLESS, NULL, 0}, /* of a head that compares pictures with texts */
    {"vision_use_head", IN_TOWER, HARMLESS, NULL, 0},
    {"attention_dropout", IN_TOWER, HARMLESS, NULL, 0},
    {"dropout", IN_TOWER, HARMLESS, NULL, 0},
    {"initializer_factor", IN_TOWER, HARMLESS, NULL, 0},
    {"initializer_range", IN_TOWER, HARMLESS, NULL, 0},

    {"quantization_config", GO, READ, NULL, 0},
    {"hidden_act", MB, TEXT, "silu|swish", 20},
    {"expand", MB, READ, NULL, 0},
    {"time_step_limit", MB, READ, NULL, 0},
    {"chunk_size", MB, HARMLESS, NULL, 0},       /* where sums are cut: the same sums */
    {"residual_in_fp32", MB, HARMLESS, NULL, 0}, /* rounding only: the stream has the compute type here */
    {"rms_norm", MB, TRUE_, NULL, 0},
    {"norm_before_gate", MB, FALSE_, NULL, 0},
    {"time_step_rank", MB, HARMLESS, NULL, 0}, /* of Mamba-1; nothing reads it */
    {"time_step_min", MB, HARMLESS, NULL, 0},  /* how weights begin */
    {"time_step_max", MB, HARMLESS, NULL, 0},
    {"time_step_floor", MB, HARMLESS, NULL, 0},
    {"rescale_prenorm_residual", MB, HARMLESS, NULL, 0},

    {"hybrid_override_pattern", NH, READ, NULL, 0},
    {"layers_block_type", NH, READ, NULL, 0},
    {"layer_types", NH, READ, NULL, 0},
    {"time_step_limit", NH, READ, NULL, 0},
    {"mamba_hidden_act", NH, TEXT, "silu|swish", 81},
    {"mlp_hidden_act", NH, TEXT, "relu2", 20},
    {"hidden_act", NH, HARMLESS, NULL, 0}, /* their code reads the two above */
    {"attention_bias", NH, FALSE_, NULL, 120},
    {"mlp_bias", NH, FALSE_, NULL, 135},
    {"mamba_proj_bias", NH, FALSE_, NULL, 0},
    {"sliding_window", NH, NULL_, NULL, 0},
    {"hidden_dropout", NH, HARMLESS, NULL, 0},
    {"rms_norm_eps", NH, HARMLESS, NULL, 0}, /* their code reads layer_norm_epsilon */
    {"norm_eps", NH, HARMLESS, NULL, 0},
    {"expand", NH, HARMLESS, NULL, 0},     /* the inner width is that of the heads */
    {"chunk_size", NH, HARMLESS, NULL, 0}, /* where sums are cut: the same sums */
    {"time_step_min", NH, HARMLESS, NULL,
     0}, /* how weights begin; docs/state-spaces.md says what releases make of it */
    {"time_step_max", NH, HARMLESS, NULL, 0},
    {"time_step_floor", NH, HARMLESS, NULL, 0},
    {"time_step_rank", NH, HARMLESS, NULL, 0},
    {"rescale_prenorm_residual", NH, HARMLESS, NULL, 0},
    {"residual_in_fp32", NH, HARMLESS, NULL, 0},
    {"num_logits_to_keep", NH, HARMLESS, NULL, 0},
    {"use_mamba_kernels", NH, HARMLESS, NULL, 0},
    {"mamba_ssm_cache_dtype", NH, HARMLESS, NULL, 0},
    {"num_nextn_predict_layers", NH, ZERO, NULL, 0},
    {"mtp_layers_block_type", NH, HARMLESS, NULL, 0}, /* of modules that are refused where there are any */
    {"mtp_hybrid_override_pattern", NH, HARMLESS, NULL, 0},
    {"n_routed_experts", NH, HARMLESS, NULL, 0}, /* of layers of experts, which the pattern would name */
    {"n_shared_experts", NH, HARMLESS, NULL, 0},
    {"moe_intermediate_size", NH, HARMLESS, NULL, 0},
    {"moe_shared_expert_intermediate_size", NH, HARMLESS, NULL, 0},
    {"moe_shared_expert_overlap", NH, HARMLESS, NULL, 0},
    {"moe_latent_size", NH, HARMLESS, NULL, 0},
    {"num_experts_per_tok", NH, HARMLESS, NULL, 0},
    {"routed_scaling_factor", NH, HARMLESS, NULL, 0},
    {"n_group", NH, HARMLESS, NULL, 0},
    {"topk_group", NH, HARMLESS, NULL, 0},
    {"norm_topk_prob", NH, HARMLESS, NULL, 0},
    {"output_router_logits", NH, HARMLESS, NULL, 0},

    {"quantization_config", ALL, NULL_, NULL, 0},
    {"is_encoder_decoder", ALL, FALSE_, NULL, 0},
    {"tie_encoder_decoder", ALL, FALSE_, NULL, 0},
    {"add_cross_attention", ALL, FALSE_, NULL, 0},
    {"cross_attention_hidden_size", ALL, NULL_, NULL, 0},
    {"pruned_heads", ALL, EMPTY, NULL, 0},
};

/* Names and labels, generation, how the library runs it: of no concern to the numbers of the model. */
/* clang-format off */
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
/* clang-format on */

static bool is_ignored(const struct hf_ignore *ignore, const char *name)
{
    for (int i = 0; ignore && i < ignore->n; i++)
        if (strcmp(ignore->keys[i], name) == 0) return true;
    return false;
}

void hf_print_value(struct str *s, const struct json *v)
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
    case SLOPE: return json_real(v, 0) == 1.702; /* ACT_CLAMPED_SLOPE */
    case TEXT: return hf_word(k->text, json_string(v, NULL, "?")) >= 0;
    case EMPTY: return (kind == JSON_OBJECT || kind == JSON_ARRAY) && json_size(v) == 0;
    }
    return false;
}

static const char *wanted(const struct key *k)
{
    static const char *const values[] = {[FALSE_] = "false", [TRUE_] = "true",  [NULL_] = "null", [ONE] = "1",
                                         [ZERO] = "0",       [SLOPE] = "1.702", [EMPTY] = "{}"};
    return k->rule == TEXT ? k->text : values[k->rule];
}

/* k: the key's row, NULL when there is none. */
static int refuse(const struct key *k, const char *name, const struct json *v, const char *what, struct err *e)
{
    struct str value = {0};
    hf_print_value(&value, v);
    int rc;
    if (k)
        rc = err_set(e, ERR_REQUEST,
                     "%s: %s is %s: tutti computes this model only with %s here; with another value it would be "
                     "another model (model.ignore: [%s] takes it as if the key were not there)",
                     what, name, str_text(&value), wanted(k), name);
    else
        rc = err_set(e, ERR_REQUEST,
                     "%s: %s is %s: tutti does not know this key, which may change what the model computes; if it does "
                     "not, model.ignore: [%s] says so",
                     what, name, str_text(&value), name);
    str_free(&value);
    return rc;
}

/* The row of a key in `in` (families, or an object of rotary positions); a number is read, and a word of it is one of
 * its words. */
static bool find(unsigned in, const char *name, struct key *out)
{
    const struct number *n = hf_number_spelt(name, in);
    bool words = n && n->row.type == CONF_CHOICE;
    if (n) *out = (struct key){name, in, words ? TEXT : READ, words ? n->row.choices : NULL, 0};
    for (size_t i = 0; !n && i < sizeof keys / sizeof *keys; i++)
        if (keys[i].families & in && strcmp(keys[i].name, name) == 0) {
            *out = keys[i];
            return true;
        }
    return n != NULL;
}

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], name) == 0) return true;
    return false;
}

enum hf_key_kind hf_key_kind(unsigned in, const char *name)
{
    struct key k;
    if (!find(in, name, &k)) return is_harmless(name) ? HF_KEY_HARMLESS : HF_KEY_UNKNOWN;
    return k.rule == READ ? HF_KEY_READ : k.rule == HARMLESS ? HF_KEY_HARMLESS : HF_KEY_ONE_VALUE;
}

int hf_keys_check(enum hf_family family, const struct json *config, const struct hf_ignore *ignore, const char *what,
                  struct err *e)
{
    return hf_keys_check_in(1u << family, config, ignore, what, e);
}

int hf_keys_check_in(unsigned in, const struct json *config, const struct hf_ignore *ignore, const char *what,
                     struct err *e)
{
    for (void *it = json_iter(config); it; it = json_iter_next(config, it)) {
        const char *name = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        struct key k;
        bool known = find(in, name, &k);
        if (json_kind(v) == JSON_NULL || (known ? fits(&k, v) : is_harmless(name)) || is_ignored(ignore, name))
            continue;
        return refuse(known ? &k : NULL, name, v, what, e);
    }
    return OK;
}

int hf_keys_check_rope(enum hf_family family, const struct json *rope, const char *key, unsigned in,
                       const struct hf_ignore *ignore, const char *what, struct err *e)
{
    const struct key others[] = {{"type", ALL, READ, NULL, 0},
                                 {"rope_type", ALL, READ, NULL, 0},
                                 {"partial_rotary_factor", ALL & ~PH, ONE, NULL, 0},
                                 {"partial_rotary_factor", PH, READ, NULL, 0},
                                 {"attention_factor", in & IN_LONGROPE ? 0 : ALL, NULL_, NULL, 0}};
    for (void *it = json_iter(rope); it; it = json_iter_next(rope, it)) {
        const char *name = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        const struct key *k = NULL;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (others[i].families >> family & 1 && strcmp(name, others[i].name) == 0) k = &others[i];
        if (json_kind(v) == JSON_NULL || (k ? fits(k, v) : hf_number_spelt(name, in) != NULL)) continue;
        struct str path = {0};
        str_printf(&path, "%s.%s", key, name);
        int rc = is_ignored(ignore, path.p) ? OK : refuse(k, path.p, v, what, e);
        str_free(&path);
        if (rc) return rc;
    }
    return OK;
}

/* ---- writing ---- */
static void put_only(struct json_out *o, const struct hf_put *p)
{
    const struct key *k = p->of;
    char word[64];
    switch (k->rule) {
    case FALSE_:
    case TRUE_: json_put_bool(o, k->name, k->rule == TRUE_); break;
    case ONE:
    case ZERO: json_put_int(o, k->name, k->rule == ONE); break;
    case TEXT:
        snprintf(word, sizeof word, "%.*s", (int)strcspn(k->text, "|"), k->text);
        json_put_string(o, k->name, word);
        break;
    default: CHECK(0, "%s is written and has no value", k->name);
    }
}

void hf_keys_add(struct hf_puts *s, unsigned in)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].at && keys[i].families & in)
            hf_puts_add(s, (struct hf_put){keys[i].at, keys[i].name, put_only, &keys[i], NULL});
}
