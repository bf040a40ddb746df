/* SPDX-License-Identifier: Apache-2.0 */
/* hf_generation.c: a closed table of keys. transformers' generate() follows this file unasked; tutti's generate and
 * serve follow what they are told, so that a text follows from the command alone, and say which of the file's wishes
 * they leave aside. Ends of texts are no wish: a model that was taught to stop with one of them goes on without it. */
#include "hub/hf_generation.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "hub/hf_config_impl.h"
#include "hub/hf_keys.h"

enum { FILE_LIMIT = 16 << 20 };

enum rule {
    READ,
    ANY,   /* how the library runs, or for how long: nothing of what is written first is another */
    TOLD,  /* would change what is written, unless it is `idle` */
    DRAWN, /* the same, where tokens are drawn (do_sample) */
};

static const struct row {
    const char *key;
    enum rule rule;
    double idle; /* the number that asks for nothing; false, null, [] do too */
} rows[] = {
    {"eos_token_id", READ, 0},
    {"bos_token_id", ANY, 0}, /* the tokenizer says what stands before a text */
    {"pad_token_id", ANY, 0},
    {"decoder_start_token_id", ANY, 0}, /* config.json's is read */
    {"transformers_version", ANY, 0},
    {"_from_model_config", ANY, 0},
    {"_commit_hash", ANY, 0},
    {"max_length", ANY, 0},
    {"max_new_tokens", ANY, 0},
    {"max_time", ANY, 0},
    {"num_return_sequences", ANY, 0},
    {"use_cache", ANY, 0},
    {"use_mtp", ANY, 0},
    {"cache_implementation", ANY, 0},
    {"cache_config", ANY, 0},
    {"max_cache_len", ANY, 0},
    {"prefill_chunk_size", ANY, 0},
    {"output_attentions", ANY, 0},
    {"output_hidden_states", ANY, 0},
    {"output_scores", ANY, 0},
    {"output_logits", ANY, 0},
    {"return_dict_in_generate", ANY, 0},
    {"is_assistant", ANY, 0},
    {"num_assistant_tokens", ANY, 0},
    {"num_assistant_tokens_schedule", ANY, 0},
    {"assistant_confidence_threshold", ANY, 0},
    {"assistant_early_exit", ANY, 0},
    {"assistant_lookbehind", ANY, 0},
    {"assistant_ensemble_weight", ANY, 0},
    {"target_lookbehind", ANY, 0},
    {"prompt_lookup_num_tokens", ANY, 0},
    {"max_matching_ngram_size", ANY, 0},
    {"speculation_type", ANY, 0},
    {"compile_config", ANY, 0},
    {"disable_compile", ANY, 0},
    {"continuous_batching_config", ANY, 0},
    {"low_memory", ANY, 0},
    {"trust_remote_code", ANY, 0},
    {"remove_invalid_values", ANY, 0},

    {"do_sample", TOLD, 0},
    {"temperature", DRAWN, 1},
    {"top_k", DRAWN, 0},
    {"top_p", DRAWN, 1},
    {"min_p", DRAWN, 0},
    {"top_h", DRAWN, 0},
    {"typical_p", DRAWN, 1},
    {"epsilon_cutoff", DRAWN, 0},
    {"eta_cutoff", DRAWN, 0},
    {"min_length", TOLD, 0},
    {"min_new_tokens", TOLD, 0},
    {"early_stopping", TOLD, 0},
    {"stop_strings", TOLD, 0},
    {"num_beams", TOLD, 1},
    {"num_beam_groups", TOLD, 1},
    {"diversity_penalty", TOLD, 0},
    {"length_penalty", TOLD, 1},
    {"repetition_penalty", TOLD, 1},
    {"encoder_repetition_penalty", TOLD, 1},
    {"no_repeat_ngram_size", TOLD, 0},
    {"encoder_no_repeat_ngram_size", TOLD, 0},
    {"bad_words_ids", TOLD, 0},
    {"force_words_ids", TOLD, 0},
    {"constraints", TOLD, 0},
    {"renormalize_logits", TOLD, 0},
    {"forced_bos_token_id", TOLD, -1},
    {"forced_eos_token_id", TOLD, -1},
    {"exponential_decay_length_penalty", TOLD, 0},
    {"suppress_tokens", TOLD, 0},
    {"begin_suppress_tokens", TOLD, 0},
    {"sequence_bias", TOLD, 0},
    {"token_healing", TOLD, 0},
    {"guidance_scale", TOLD, 1},
    {"watermarking_config", TOLD, 0},
    {"penalty_alpha", TOLD, 0},
    {"dola_layers", TOLD, 0},
};

static const struct row *row_of(const char *key)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key)) return &rows[i];
    return NULL;
}

bool hf_generation_knows(const char *key) { return row_of(key) != NULL; }

/* ---- ends ---- */
static bool has_end(const struct hf_model *m, int64_t id)
{
    for (int i = 0; i < m->n_eos; i++)
        if (m->eos[i] == id) return true;
    return false;
}

static int take_ends(struct hf_model *m, const struct json *v, const char *what, struct err *e)
{
    bool several = v && json_kind(v) == JSON_ARRAY;
    size_t n = several ? json_size(v) : v && json_kind(v) != JSON_NULL;
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        int rc = hf_token_id(several ? json_at(v, i) : v, &id, what, "eos_token_id", e);
        if (rc) return rc;
        if (id < 0 || has_end(m, id)) continue;
        if (m->n_eos == HF_EOS)
            return err_set(e, ERR_REQUEST, "%s: eos_token_id: with config.json's more than %d; tutti keeps %d", what,
                           HF_EOS, HF_EOS);
        m->eos[m->n_eos++] = id;
    }
    return OK;
}

int hf_generation_ends(struct hf_model *m, const char *dir, struct err *e)
{
    char *path = fs_join(dir, "generation_config.json");
    struct json *root = NULL;
    int rc = fs_exists(path) ? json_parse_published_file(&root, path, FILE_LIMIT, e) : OK;
    if (rc == OK && root) rc = take_ends(m, json_get(root, "eos_token_id"), path, e);
    json_free(root);
    xfree(path);
    return rc;
}

/* ---- what is left aside ---- */
static bool asks(const struct row *r, const struct json *v)
{
    switch (json_kind(v)) {
    case JSON_NULL: return false;
    case JSON_BOOL: return json_bool(v, false);
    case JSON_INT:
    case JSON_REAL: return !r || json_real(v, 0) != r->idle;
    case JSON_STRING: return true;
    default: return json_size(v) > 0;
    }
}

int hf_generation_unfollowed(const char *text, size_t n, const char *what, struct str *out, struct err *e)
{
    struct json *root;
    int rc = json_parse_published(&root, text, n, what, e);
    if (rc) return rc;
    bool draws = json_bool(json_get(root, "do_sample"), false), any = false;
    for (void *it = json_iter(root); it; it = json_iter_next(root, it)) {
        const struct row *r = row_of(json_iter_key(it));
        const struct json *v = json_iter_value(it);
        if (r && (r->rule == READ || r->rule == ANY || (r->rule == DRAWN && !draws))) continue;
        if (!asks(r, v)) continue;
        str_printf(out, "%s%.60s ", any ? ", " : "", json_iter_key(it));
        hf_print_value(out, v);
        if (!r) str_puts(out, " (a key that tutti does not know)");
        any = true;
    }
    json_free(root);
    return OK;
}
