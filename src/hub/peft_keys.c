/* SPDX-License-Identifier: Apache-2.0 */
/* peft_keys.c: the table of keys of adapter_config.json. It is closed: of the newest release every key that a
 * LoraConfig has is a row, and one that is no row, of a release to come, is refused unless it asks for nothing.
 *
 * How an adapter began is a key like others: what peft calls PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA begins beside
 * another base than the model's, W less what the adapter begins with (or codes of W), and its file says so by this key
 * alone. Read as W + s B A such an adapter is another model. The base is not made again here: of PiSSA by iterations,
 * CorDA and LoRA-GA it is not a function of W, and peft itself can convert what it trained. */
#include "hub/peft_keys.h"

#include <string.h>

#include "base/str.h"

enum rule {
    READ,   /* peft.c does */
    FLAG,   /* the same: true or false */
    ANY,    /* whatever it says, the numbers are the same: `why` */
    NOTHING /* it may ask for nothing: `why` is what it asks for otherwise, and what to do */
};

#define MERGED "merge it in peft (merge_and_unload, save_pretrained) and name that model instead"
static const struct row {
    const char *key;
    enum rule rule;
    const char *why;
} rows[] = {
    {"peft_type", READ, NULL},
    {"r", READ, NULL},
    {"lora_alpha", READ, NULL},
    {"lora_dropout", READ, NULL},
    {"use_rslora", FLAG, NULL},
    {"use_dora", FLAG, NULL},
    {"init_lora_weights", READ, NULL},

    {"target_modules", ANY, "the tensors say which matrices have adapters"},
    {"exclude_modules", ANY, "the tensors say it"},
    {"layers_to_transform", ANY, "the tensors say it"},
    {"layers_pattern", ANY, "the tensors say it"},
    {"fan_in_fan_out", ANY, "how their layer keeps its matrix; A and B lie alike"},
    {"task_type", ANY, "which class of peft holds the model"},
    {"auto_mapping", ANY, "which class of peft holds the model"},
    {"base_model_name_or_path", ANY, "the base is model.from's, and shapes are compared"},
    {"revision", ANY, "of that name"},
    {"inference_mode", ANY, "whether peft trains it"},
    {"peft_version", ANY, "who wrote it"},
    {"runtime_config", ANY, "where peft computes"},
    {"megatron_core", ANY, "the name of a package, which megatron_config would want"},
    {"qalora_group_size", ANY, "of use_qalora"},
    {"loftq_config", ANY, "of init_lora_weights"},
    {"eva_config", ANY, "of init_lora_weights"},
    {"corda_config", ANY, "of init_lora_weights"},
    {"lora_ga_config", ANY, "of init_lora_weights"},

    {"bias", NOTHING, "the model's own biases are trained beside adapters; " MERGED},
    {"lora_bias", NOTHING, "adapters have biases; " MERGED},
    {"modules_to_save", NOTHING, "whole matrices are trained beside adapters; " MERGED},
    {"trainable_token_indices", NOTHING, "rows of the embedding are trained beside adapters; " MERGED},
    {"target_parameters", NOTHING,
     "adapters of tensors that hold all experts at once, which are named and cut otherwise than one for each expert "
     "here (the tensors stay without a place where the key is taken out); " MERGED},
    {"rank_pattern", NOTHING, "matrices have ranks of their own, here all have one; " MERGED},
    {"alpha_pattern", NOTHING, "matrices have factors of their own, here all have one; " MERGED},
    {"layer_replication", NOTHING, "layers of the base stand in the model several times; " MERGED},
    {"use_qalora", NOTHING, "inputs are pooled before A; " MERGED},
    {"use_bdlora", NOTHING, "A and B are blocks on a diagonal; " MERGED},
    {"alora_invocation_tokens", NOTHING,
     "adapters are switched on inside of a text (aLoRA), which is not computed here, and cannot be merged"},
    {"arrow_config", NOTHING,
     "a router chooses among several adapters, which is not computed here, and cannot be merged"},
    {"kasa_config", NOTHING, "adapters have singular values of their own (KaSA); " MERGED},
    {"monteclora_config", NOTHING, "adapters are drawn at random (MonteCLoRA); " MERGED},
    {"velora_config", NOTHING,
     "backward takes inputs that were compressed (VeLoRA), which is not computed here; take the key out to read the "
     "adapter as it is, and go on training it as plain LoRA"},
    {"megatron_config", NOTHING, "the layers are Megatron's; " MERGED},
    {"ensure_weight_tying", NOTHING,
     "an adapter of the output matrix would be one of the embedding too, which has none here; where no target is "
     "either of them, take the key out, else " MERGED},
};

/* Ways to begin whose base is the model's own. */
static const char *const own_base[] = {"true", "false", "gaussian", "orthogonal", "eva", "mica"};

static const struct row *row_of(const char *key)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key)) return &rows[i];
    return NULL;
}

bool peft_keys_know(const char *key) { return row_of(key) != NULL; }

static bool asks_for_nothing(const struct json *v)
{
    switch (json_kind(v)) {
    case JSON_NULL: return true;
    case JSON_BOOL: return !json_bool(v, true);
    case JSON_ARRAY:
    case JSON_OBJECT: return json_size(v) == 0;
    case JSON_STRING: return !strcmp(json_string(v, NULL, ""), "none");
    default: return false;
    }
}

static int check_beginning(const struct json *v, const char *path, struct err *e)
{
    const char *word = json_string(v, NULL, "?");
    if (json_kind(v) == JSON_BOOL) word = json_bool(v, false) ? "true" : "false";
    for (size_t i = 0; i < sizeof own_base / sizeof *own_base; i++)
        if (!strcmp(own_base[i], word)) return OK;
    return err_set(
        e, ERR_REQUEST,
        "%s: init_lora_weights: %.40s: an adapter that began so is one beside another base than the model (as "
        "PiSSA's and OLoRA's, which begin with parts of the matrices and take them out of these), and without "
        "that base it is another model; where peft trained it, save it once more as plain LoRA: "
        "save_pretrained(DIR, path_initial_model_for_weight_conversion=ADAPTER_AS_IT_BEGAN), or " MERGED,
        path, word);
}

int peft_keys_check(const struct json *config, const char *path, struct err *e)
{
    for (void *it = json_iter(config); it; it = json_iter_next(config, it)) {
        const char *key = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        const struct row *row = row_of(key);
        if (json_kind(v) == JSON_NULL || (row && row->rule == ANY)) continue;
        if (row && !strcmp(key, "init_lora_weights")) {
            int rc = check_beginning(v, path, e);
            if (rc) return rc;
            continue;
        }
        if (row && row->rule == FLAG && json_kind(v) != JSON_BOOL)
            return err_set(e, ERR_REQUEST, "%s: %s: wanted true or false", path, key);
        if ((row && (row->rule == READ || row->rule == FLAG)) || asks_for_nothing(v)) continue;
        if (row) return err_set(e, ERR_REQUEST, "%s: %s: %s", path, key, row->why);
        return err_set(e, ERR_REQUEST,
                       "%s: %.60s: tutti does not know this key, which may change what is computed; " MERGED, path,
                       key);
    }
    return OK;
}
