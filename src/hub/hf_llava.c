/* SPDX-License-Identifier: Apache-2.0 */
/* hf_llava.c: which features of the tower the text sees is said by two keys: a layer (hidden states before it, from the
 * end where negative) and whether the class's row is dropped. Layers behind are not read, and a file that we write has
 * none: its feature layer is the last. */
#include "hub/hf_llava.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "hub/hf_keys.h"

static const struct tower {
    const char *type, *strategy;
    unsigned in;
    bool class_place, norm_before, patch_bias;
} towers[] = {
    {"clip_vision_model", "default", IN_CLIP, true, true, false},
    {"siglip_vision_model", "full", IN_SIGLIP, false, false, true},
};
enum { TOWERS = sizeof towers / sizeof *towers };

static const struct tower *tower_of(const struct hf_model *m)
{
    const struct vision_config *v = &m->model.vision;
    for (int i = 0; i < TOWERS; i++)
        if (v->class_place == towers[i].class_place && v->norm_before == towers[i].norm_before &&
            v->patch_bias == towers[i].patch_bias)
            return &towers[i];
    return NULL;
}

const char *hf_llava_tower(const struct hf_model *m) { return tower_of(m) ? tower_of(m)->type : NULL; }

/* ---- reading ---- */
static int object_of(const struct json *config, const char *key, const struct json **out, const char *what,
                     struct err *e)
{
    *out = json_get(config, key);
    if (*out && json_kind(*out) == JSON_OBJECT) return OK;
    return err_set(e, ERR_REQUEST, "%s: %s: wanted an object", what, key);
}

static int read_text(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                     struct err *e)
{
    const struct json *text;
    int rc = object_of(config, "text_config", &text, what, e);
    if (rc) return rc;
    const char *type = json_string(json_get(text, "model_type"), NULL, "llama");
    if (strcmp(type, "llama") != 0)
        return err_set(e, ERR_REQUEST, "%s: text_config.model_type: %.60s: of LLaVA's decoders llama is computed here",
                       what, type);
    char inside[600];
    snprintf(inside, sizeof inside, "%.500s: text_config", what);
    rc = hf_text_read(m, text, ignore, inside, e);
    bool outer = json_bool(json_get(config, "tie_word_embeddings"), m->model.tie_embeddings);
    if (!rc && outer != m->model.tie_embeddings)
        rc = err_set(e, ERR_REQUEST, "%s: tie_word_embeddings: is not what text_config says", what);
    return rc;
}

/* Blocks of the tower whose result is seen. */
static int read_layers(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    const struct json *at = json_get(config, "vision_feature_layer");
    int64_t all = m->model.vision.layers, layer = at ? json_int(at, INT32_MIN) : -2;
    int64_t n = layer < 0 ? all + 1 + layer : layer;
    if (n < 1 || n > all)
        return err_set(e, ERR_REQUEST,
                       "%s: vision_feature_layer: wanted one layer of the tower's %lld, behind a block: %lld to -1, or "
                       "1 to %lld",
                       what, (long long)all, (long long)-all, (long long)all);
    m->model.vision.layers = n;
    return OK;
}

static int read_tower(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    const struct json *vision;
    struct vision_config *v = &m->model.vision;
    int rc = object_of(config, "vision_config", &vision, what, e), i = 0;
    if (rc) return rc;
    const char *type = json_string(json_get(vision, "model_type"), NULL, towers[0].type);
    while (i < TOWERS && strcmp(towers[i].type, type) != 0) i++;
    if (i == TOWERS)
        return err_set(e, ERR_REQUEST,
                       "%s: vision_config.model_type: %.60s: towers that are computed here are %s and %s", what, type,
                       towers[0].type, towers[1].type);
    const char *strategy = json_string(json_get(config, "vision_feature_select_strategy"), NULL, "default");
    if (strcmp(strategy, towers[i].strategy) != 0)
        return err_set(e, ERR_REQUEST,
                       "%s: vision_feature_select_strategy: %.40s: with a tower of %s tutti computes \"%s\", patches "
                       "and no other row",
                       what, strategy, type, towers[i].strategy);
    char inside[600];
    snprintf(inside, sizeof inside, "%.500s: vision_config", what);
    rc = hf_keys_check_in(towers[i].in, vision, ignore, inside, e);
    if (!rc) rc = hf_numbers_read(&m->model, model_numbers, vision, towers[i].in, inside, e);
    if (!rc) rc = read_layers(m, config, what, e);
    if (!rc && v->image_size % v->patch_size)
        rc = err_set(e, ERR_REQUEST,
                     "%s: patch_size: %lld does not divide image_size %lld; tutti cuts pictures into whole patches",
                     inside, (long long)v->patch_size, (long long)v->image_size);
    if (!rc && v->hidden % v->heads)
        rc = err_set(e, ERR_REQUEST, "%s: hidden_size: %lld is not a multiple of num_attention_heads %lld", inside,
                     (long long)v->hidden, (long long)v->heads);
    return rc;
}

int hf_llava_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                  struct err *e)
{
    struct vision_config *v = &m->model.vision;
    int rc = hf_keys_check_in(IN_LLAVA, config, ignore, what, e);
    if (!rc) rc = read_text(m, config, ignore, what, e);
    if (!rc) rc = hf_numbers_read(&m->model, model_numbers, config, IN_LLAVA, what, e);
    if (!rc) rc = read_tower(m, config, ignore, what, e);
    if (rc) return rc;
    v->images = m->model.max_positions / vision_patches(v);
    if (v->images < 1) v->images = 1;
    if (v->images > 4096) v->images = 4096;
    return OK;
}

/* ---- writing ---- */
void hf_llava_put(struct json_out *o, const char *key, const struct hf_model *m, const char *architecture,
                  const char *dtype)
{
    const struct tower *t = tower_of(m);
    struct hf_puts own = {.n = 0}, vision = {.n = 0};
    hf_keys_add(&own, IN_LLAVA);
    hf_puts_add_numbers(&own, &m->model, model_numbers, IN_LLAVA);
    hf_puts_add_numbers(&vision, &m->model, model_numbers, t->in);
    json_begin_object(o, key);
    json_begin_array(o, "architectures");
    json_put_string(o, NULL, architecture);
    json_end_array(o);
    json_put_string(o, "model_type", hf_family_name(m->family));
    hf_config_put_as(o, "text_config", m, "LlamaForCausalLM", "llama", DT_F32);
    json_begin_object(o, "vision_config");
    json_put_string(o, "model_type", t->type);
    hf_puts_write(&vision, o);
    json_end_object(o);
    json_put_int(o, "vision_feature_layer", -1);
    json_put_string(o, "vision_feature_select_strategy", t->strategy);
    json_put_int(o, "image_seq_length", vision_patches(&m->model.vision));
    json_put_bool(o, "tie_word_embeddings", m->model.tie_embeddings);
    hf_puts_write(&own, o);
    json_put_string(o, "torch_dtype", dtype);
    json_end_object(o);
}
