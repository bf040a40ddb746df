/* SPDX-License-Identifier: Apache-2.0 */
/* config_model.c: sizes that nobody says follow from others, or from the tokenizer; a model that cannot be is refused
 * by the key of its number. */
#include "config/config_model.h"

#include <stdio.h>
#include <string.h>

#include "config/config_preference.h"
#include "data/taken_spans.h"
#include "model/family_defaults.h"

static int check_model(const struct config *c, const struct conf *f, struct err *e)
{
    if (model_check(&c->model, e)) {
        char text[sizeof e->text];
        snprintf(text, sizeof text, "%s", e->text);
        char key[64] = "model";
        sscanf(text, "%63[a-z_.]", key);
        return err_set(e, ERR_REQUEST, "%s: %s", conf_where(f, key), text);
    }
    return OK;
}

/* What the keys say, where the model's declaration finds it. */
static int resolve_adapter(struct config *c, const struct conf *f, struct err *e)
{
    const struct conf_list *l = &c->adapter.targets;
    c->model.adapter = c->adapter.made;
    if (!c->adapter.kind && c->adapter.base)
        return conf_error(f, e, "adapter.base",
                          "%s keeps what is not trained in few bits, and adapter.kind: none trains all; choose "
                          "adapter.kind: lora, or none",
                          packing_row((enum packing)c->adapter.base)->name);
    if (!c->adapter.kind) return OK;
    for (int i = 0; i < l->n; i++)
        if (!((const char *const *)l->items)[i])
            return conf_error(f, e, "adapter.targets", "wanted names of matrices, got null");
    if (!l->n) return conf_error(f, e, "adapter.targets", "wanted names of matrices, such as [q, v]; got none");
    if (c->parallel.servers)
        return conf_error(f, e, "adapter.kind",
                          "a parameter server steps all that there is; choose none%s, or parallel.servers: 0",
                          c->adapter.base ? " and adapter.base: none" : "");
    if (recipe_quantises(c->precision.recipe) || c->precision.layers.n)
        return conf_error(f, e, "adapter.kind",
                          "products of adapters are too narrow for blocks of few bits; choose none%s, or "
                          "precision.recipe: bf16 and precision.layers: {}",
                          c->adapter.base ? " and adapter.base: none" : "");
    *c->adapter.made = (struct adapter){.rank = c->adapter.rank,
                                        .alpha = c->adapter.alpha,
                                        .stabilised = c->adapter.stabilised,
                                        .lengths = c->adapter.kind == ADAPTER_DORA,
                                        .base = (enum packing)c->adapter.base,
                                        .targets = l->items,
                                        .n_targets = l->n};
    return OK;
}

static bool has_plain_mlp(const struct config *c)
{
    return c->model.family == MODEL_GPT2 || model_both_ways(&c->model) || model_mixes(&c->model);
}

/* Of a picture, held to what the key allows: what is beyond, model_check says. */
static int64_t places(const struct config *c)
{
    int64_t n = model_places(&c->model), most = 1 << 24;
    return n < most ? n : most;
}

static bool is_said(const void *f, const char *path) { return strcmp(conf_where(f, path), "default") != 0; }

/* As many pictures as fit; a token that no text has. */
static void resolve_vision(struct config *c, const struct conf *f, int64_t n_vocab)
{
    struct vision_config *v = &c->model.vision;
    int64_t patches = v->image_size >= v->patch_size ? vision_patches(v) : 1, fits = c->model.seq_len / patches;
    if (!v->images) v->images = fits < 1 ? 1 : fits > 4096 ? 4096 : fits;
    if (!c->from.dir && !is_said(f, "model.vision.token")) v->token = c->model.vocab ? c->model.vocab - 1 : n_vocab;
    if (!c->model.vocab) c->model.vocab = v->token >= n_vocab ? v->token + 1 : n_vocab;
}

/* How many tokens the encoder reads follows from the length of samples, and layers are halved where nobody says. */
static int resolve_pairs(struct config *c, const struct conf *f, struct err *e)
{
    struct span_counts s, own;
    double rate = c->data.spans.rate, mean = c->data.spans.mean;
    int64_t seq = c->model.seq_len;
    if (!c->from.dir && !is_said(f, "model.encoder_layers")) c->model.encoder_layers = c->model.layers / 2;
    if (c->from.dir && !is_said(f, "data.spans.start")) c->data.spans.start = c->from.start;
    c->model.pads = config_sides(c);
    if (c->model.pads && !c->model.encoder_len) c->model.encoder_len = seq / 2;
    if (c->model.pads && (c->model.encoder_len < 2 || c->model.encoder_len > seq - 2))
        return conf_error(f, e, "model.encoder_len",
                          "%lld of model.seq_len = %lld places leave a text of a token and its end no room; choose "
                          "%lld",
                          (long long)c->model.encoder_len, (long long)seq, (long long)(seq / 2));
    if (c->model.pads) return OK;
    if (!span_counts_of(&own, rate, mean, seq, 0))
        return conf_error(f, e, "model.seq_len", "%lld places hold no text with a span taken out; choose 6 or more",
                          (long long)seq);
    if (!c->model.encoder_len) c->model.encoder_len = own.encoder;
    if (!span_counts_of(&s, rate, mean, seq, c->model.encoder_len))
        return conf_error(f, e, "model.encoder_len",
                          "%lld: no text leaves the encoder so many tokens by data.spans, and room for the decoder's "
                          "in model.seq_len = %lld; choose %lld, or leave it out",
                          (long long)c->model.encoder_len, (long long)seq, (long long)own.encoder);
    if (c->data.spans.id >= 0 && c->data.spans.id < s.spans - 1)
        return conf_error(f, e, "data.spans.id", "%lld marks count down from it; choose %lld or more",
                          (long long)s.spans, (long long)s.spans - 1);
    return OK;
}

int config_resolve_model(struct config *c, const struct conf *f, int64_t n_vocab, struct err *e)
{
    if (resolve_adapter(c, f, e)) return e->code;
    if (!c->from.dir) family_defaults(&c->model, is_said, f);
    config_resolve_score(c, f);
    if (c->model.rope_scaling.factor > 0 && c->model.yarn.factor > 0)
        return conf_error(f, e, "model.rope_scaling.factor",
                          "%g beside YaRN's (model.yarn.factor: %g): positions are scaled in one way; set one "
                          "of the two to 0",
                          c->model.rope_scaling.factor, c->model.yarn.factor);
    if (c->model.rope_part == 1) c->model.rope_part = 0;
    if (model_mixes(&c->model) && !c->from.dir && !strcmp(conf_where(f, "model.layers"), "default"))
        c->model.layers = layer_kinds_length(&c->model.pattern);
    if (model_scans(&c->model) && !c->model.ssm.heads) c->model.ssm.heads = 2 * c->model.hidden / c->model.ssm.head_dim;
    if (!c->model.kv_heads) c->model.kv_heads = c->model.heads;
    if (!c->model.head_dim && c->model.mla.kv_rank) c->model.head_dim = c->model.mla.nope_dim + c->model.mla.rope_dim;
    if (!c->model.head_dim && c->model.hidden % c->model.heads == 0)
        c->model.head_dim = c->model.hidden / c->model.heads;
    if (!c->model.ffn) c->model.ffn = has_plain_mlp(c) ? 4 * c->model.hidden : (c->model.hidden * 8 / 3 + 63) / 64 * 64;
    if (!c->model.moe.ffn) c->model.moe.ffn = c->model.ffn;
    if (model_looks(&c->model) && !c->model.vision.ffn) c->model.vision.ffn = 4 * c->model.vision.hidden;
    if (model_sees(&c->model) && strcmp(conf_where(f, "model.seq_len"), "default") == 0) c->model.seq_len = places(c);
    if (!c->model.max_positions) c->model.max_positions = c->model.seq_len;
    if (c->model.max_positions < c->model.seq_len)
        return conf_error(f, e, "model.max_positions", "%lld is less than model.seq_len; choose at least %lld",
                          (long long)c->model.max_positions, (long long)c->model.seq_len);
    if (model_sees(&c->model) && c->run.sample_every)
        return conf_error(f, e, "run.sample_every", "a model that sees pictures writes no text; leave it out");
    const char *silent = "bert reads both ways and writes no text";
    bool writes = !model_both_ways(&c->model) || model_pairs(&c->model);
    if (!writes && c->run.sample_every) return conf_error(f, e, "run.sample_every", "%s; leave it out", silent);
    if (c->run.samples.n && !writes)
        return conf_error(f, e, "run.samples", "%s; leave it out",
                          model_sees(&c->model) ? "a model that sees pictures writes no text" : silent);
    if (model_pairs(&c->model) && resolve_pairs(c, f, e)) return e->code;
    if (model_sees(&c->model)) return check_model(c, f, e);
    if (model_looks(&c->model)) resolve_vision(c, f, n_vocab);
    if (!c->model.vocab) c->model.vocab = n_vocab;
    if (!c->model.vocab)
        return conf_error(f, e, "model.vocab",
                          "there is no tokenizer to ask (data.tokenizer); choose 50304 (or as many ids as the data "
                          "have)");
    if (n_vocab > c->model.vocab)
        return conf_error(f, e, "model.vocab",
                          "%lld is less than the tokenizer's %lld ids; leave it out, or choose %lld",
                          (long long)c->model.vocab, (long long)n_vocab, (long long)n_vocab);
    return check_model(c, f, e);
}
