/* SPDX-License-Identifier: Apache-2.0 */
/* hf_tokenizer_keys.c: a closed table. A key that says the same as tokenizer.json is nothing to tell: these two are
 * written together, and only differ where one of them was changed by hand. */
#include "hub/hf_tokenizer_keys.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/hf_keys.h"

enum rule {
    READ,  /* token/ and data/ do */
    ANY,   /* no id of a text hangs on it: how texts are padded and cut off by their callers, names, files, decoding */
    UNSET, /* told where it is anything but null, false or empty */
    STEP,  /* told where the step of tokenizer.json that has the member `of` says otherwise */
    TOKENS /* tokens that tokenizer.json must have */
};

static const struct row {
    const char *key;
    enum rule rule;
    const char *of;
} rows[] = {
    {"bos_token", READ, NULL},
    {"eos_token", READ, NULL},
    {"add_bos_token", READ, NULL},
    {"chat_template", READ, NULL},

    {"add_eos_token", UNSET, NULL},
    {"split_special_tokens", UNSET, NULL},
    {"fix_mistral_regex", UNSET, NULL},
    {"extra_ids", ANY, NULL}, /* names of tokens that the file has */
    {"add_prefix_space", STEP, "add_prefix_space"},
    {"do_lower_case", STEP, "lowercase"},
    {"strip_accents", STEP, "strip_accents"},
    {"tokenize_chinese_chars", STEP, "handle_chinese_chars"},
    {"added_tokens_decoder", TOKENS, NULL},
    {"additional_special_tokens", TOKENS, NULL},
    {"extra_special_tokens", TOKENS, NULL},

    {"unk_token", ANY, NULL}, /* tokenizer.json says which counts */
    {"pad_token", ANY, NULL},
    {"sep_token", ANY, NULL},
    {"cls_token", ANY, NULL},
    {"mask_token", ANY, NULL},
    {"eot_token", ANY, NULL},
    {"fill_token", ANY, NULL},
    {"prefix_token", ANY, NULL},
    {"middle_token", ANY, NULL},
    {"suffix_token", ANY, NULL},
    {"model_specific_special_tokens", ANY, NULL},
    {"chat_control_tokens", ANY, NULL},
    {"unk_id", ANY, NULL},
    {"pad_token_type_id", ANY, NULL},
    {"model_max_length", ANY, NULL},
    {"max_len", ANY, NULL},
    {"max_length", ANY, NULL},
    {"padding_side", ANY, NULL},
    {"truncation_side", ANY, NULL},
    {"truncation_strategy", ANY, NULL},
    {"stride", ANY, NULL},
    {"pad_to_multiple_of", ANY, NULL},
    {"tokenizer_padding", ANY, NULL},
    {"tokenizer_truncation", ANY, NULL},
    {"_json_padding", ANY, NULL},
    {"_json_truncation", ANY, NULL},
    {"clean_up_tokenization_spaces", ANY, NULL}, /* of what is decoded; releases from 5 on do not, of BPE */
    {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", ANY, NULL},
    {"errors", ANY, NULL}, /* of bytes that are no text, decoded */
    {"trim_offsets", ANY, NULL},
    {"tokenizer_class", ANY, NULL},
    {"slow_tokenizer_class", ANY, NULL},
    {"processor_class", ANY, NULL},
    {"auto_map", ANY, NULL},
    {"backend", ANY, NULL},
    {"model_input_names", ANY, NULL},
    {"name_or_path", ANY, NULL},
    {"special_tokens_map_file", ANY, NULL},
    {"tokenizer_file", ANY, NULL},
    {"vocab_file", ANY, NULL},
    {"merges_file", ANY, NULL},
    {"gguf_file", ANY, NULL},
    {"fast_tokenizer_files", ANY, NULL},
    {"files_loaded", ANY, NULL},
    {"is_local", ANY, NULL},
    {"local_files_only", ANY, NULL},
    {"device_map", ANY, NULL},
    {"init_inputs", ANY, NULL},
    {"legacy", ANY, NULL}, /* how a model of SentencePiece was made a tokenizer.json of */
    {"from_slow", ANY, NULL},
    {"sp_model_kwargs", ANY, NULL},
    {"_spm_precompiled_charsmap", ANY, NULL},
    {"spaces_between_special_tokens", ANY, NULL},
    {"use_default_system_prompt", ANY, NULL}, /* of templates that releases before 4.44 brought along */
    {"grounded_generation_template", ANY, NULL},
    {"tool_use_template", ANY, NULL},
    {"response_schema", ANY, NULL},
    {"response_template", ANY, NULL},
    {"verbose", ANY, NULL},
    {"use_fast", ANY, NULL},
    {"transformers_version", ANY, NULL},
    {"tokenizer_object", ANY, NULL}, /* of the class that takes them, not of a file */
    {"tokenizer", ANY, NULL},
    {"vocab", ANY, NULL},
    {"merges", ANY, NULL},
    {"post_processor", ANY, NULL},
};

static const struct row *row_of(const char *key)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key)) return &rows[i];
    return NULL;
}

bool hf_tokenizer_knows(const char *key) { return row_of(key) != NULL; }

static bool is_set(const struct json *v)
{
    switch (json_kind(v)) {
    case JSON_NULL: return false;
    case JSON_BOOL: return json_bool(v, false);
    case JSON_ARRAY:
    case JSON_OBJECT: return json_size(v) > 0;
    default: return true;
    }
}

/* The member of a step of a normalizer or pre_tokenizer, alone or in a sequence; NULL: none has it. */
static const struct json *member_in(const struct json *step, const char *name)
{
    const struct json *own = step && json_kind(step) == JSON_OBJECT ? json_get(step, name) : NULL;
    static const char *const lists[] = {"normalizers", "pretokenizers"};
    for (int k = 0; !own && step && k < 2; k++) {
        const struct json *list = json_get(step, lists[k]);
        for (size_t i = 0; list && !own && i < json_size(list); i++) own = json_get(json_at(list, i), name);
    }
    return own;
}

static bool differs(const struct json *tokens, const char *name, const struct json *v)
{
    const struct json *own = tokens ? member_in(json_get(tokens, "normalizer"), name) : NULL;
    if (!own && tokens) own = member_in(json_get(tokens, "pre_tokenizer"), name);
    if (!own || json_kind(own) != JSON_BOOL || json_kind(v) != JSON_BOOL) return false; /* no step does such a thing */
    return json_bool(own, false) != json_bool(v, false);
}

static bool has_token(const struct json *tokens, const char *text)
{
    const struct json *added = json_get(tokens, "added_tokens"), *vocab = json_get(json_get(tokens, "model"), "vocab");
    for (size_t i = 0; added && i < json_size(added); i++)
        if (!strcmp(json_string(json_get(json_at(added, i), "content"), NULL, ""), text)) return true;
    if (!vocab || json_kind(vocab) != JSON_ARRAY) return json_get(vocab, text) != NULL;
    for (size_t i = 0; i < json_size(vocab); i++) /* Unigram's */
        if (!strcmp(json_string(json_at(json_at(vocab, i), 0), NULL, ""), text)) return true;
    return false;
}

static const char *token_text(const struct json *v)
{
    return json_string(v, NULL, json_string(json_kind(v) == JSON_OBJECT ? json_get(v, "content") : NULL, NULL, NULL));
}

/* The first of a list or object of tokens that tokenizer.json does not have; NULL: none. */
static const char *missing_token(const struct json *tokens, const struct json *v)
{
    const char *text;
    for (size_t i = 0; tokens && json_kind(v) == JSON_ARRAY && i < json_size(v); i++)
        if ((text = token_text(json_at(v, i))) && !has_token(tokens, text)) return text;
    for (void *it = tokens && json_kind(v) == JSON_OBJECT ? json_iter(v) : NULL; it; it = json_iter_next(v, it))
        if ((text = token_text(json_iter_value(it))) && !has_token(tokens, text)) return text;
    return NULL;
}

static void tell(struct str *out, size_t before, const char *key, const char *format, const char *text)
{
    str_printf(out, "%s%.60s%s", out->n > before ? ", " : "", key, format);
    if (text) str_printf(out, "%.60s", text);
}

static void look_at(const struct json *tokens, const char *key, const struct json *v, size_t before, struct str *out)
{
    const struct row *r = row_of(key);
    const char *missing = r && r->rule == TOKENS ? missing_token(tokens, v) : NULL;
    bool told = !r ? is_set(v) : (r->rule == UNSET && is_set(v)) || (r->rule == STEP && differs(tokens, r->of, v));
    if (missing) tell(out, before, key, " has a token that tokenizer.json has not: ", missing);
    if (!told) return;
    tell(out, before, key, " ", NULL);
    hf_print_value(out, v);
    if (!r) str_puts(out, " (a key that tutti does not know)");
}

int hf_tokenizer_unfollowed(const char *text, size_t n, const char *tokens, size_t n_tokens, struct str *out,
                            struct err *e)
{
    struct json *config = NULL, *own = NULL;
    size_t before = out->n;
    int rc = json_parse_published(&config, text, n, "tokenizer_config.json", e);
    if (!rc && tokens) rc = json_parse_published(&own, tokens, n_tokens, "tokenizer.json", e);
    for (void *it = rc ? NULL : json_iter(config); it; it = json_iter_next(config, it))
        look_at(own, json_iter_key(it), json_iter_value(it), before, out);
    json_free(config);
    json_free(own);
    return rc;
}

void hf_tokenizer_say(const struct weights *w)
{
    static const char name[] = "tokenizer_config.json";
    struct str found = {0};
    struct err e = {0};
    char *config = NULL, *tokens = NULL;
    size_t n_config, n_tokens = 0;
    int rc = weights_file(w, name, &config, &n_config, &e);
    if (!rc && config) rc = weights_file(w, "tokenizer.json", &tokens, &n_tokens, &e);
    if (!rc && config) rc = hf_tokenizer_unfollowed(config, n_config, tokens, n_tokens, &found, &e);
    if (rc) log_warn("%s: %s could not be read, so what it says is not known: %s", weights_path(w), name, e.text);
    if (found.n)
        log_warn("%s: %s says %s: texts are cut as tokenizer.json says, and transformers may cut them otherwise",
                 weights_path(w), name, found.p);
    xfree(config);
    xfree(tokens);
    str_free(&found);
}
