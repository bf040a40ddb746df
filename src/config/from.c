/* SPDX-License-Identifier: Apache-2.0 */
/* from.c: the model's description becomes a second config; what of it is copied, compared, refused follows from the
 * role that each number has in the one table of them (model/numbers.def). */
#include "config/from.h"

#include <string.h>

#include "base/log.h"
#include "hub/hf_tokenizer_keys.h"
#include "config/key.h"
#include "config/start_weights.h"

/* Whether weights say anything of it. */
static bool says(const struct number *n)
{
    return n->role == NUMBER_SHAPE || n->role == NUMBER_TABLE || n->role == NUMBER_USE;
}

/* A number that has no effect in this model: its weights say 0 where a config can, and nothing where it follows from
 * others. */
static bool counts(const struct number *n, const struct model_config *m)
{
    static const enum number_need bound[] = {NEED_PICTURES, NEED_TOWER,     NEED_SEGMENTS, NEED_PAIRS,
                                             NEED_SCAN,     NEED_ATTENTION, NEED_KINDS};
    for (size_t i = 0; i < sizeof bound / sizeof *bound; i++)
        if (n->need == bound[i] && !number_needed(n, m)) return false; /* another model has none of them, not 0 */
    return number_needed(n, m) || (n->role == NUMBER_SHAPE && strcmp(n->row.otherwise, "null"));
}

/* c with all that the model says in place of its own. What training adds (losses, speed of the bias, capacity) stays
 * the config's. */
static struct config filled(const struct config *c, const struct model_config *m)
{
    struct config t = *c;
    t.model.family = m->family;
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (says(n) && counts(n, m))
            memcpy((char *)&t.model + n->row.offset, (const char *)m + n->row.offset, key_bytes(&n->row));
    return t;
}

/* ---- one key ---- */
static bool is_shape(const struct number *n, const struct model_config *m)
{
    return n->role == NUMBER_SHAPE || (n->role == NUMBER_TABLE && (m->family == MODEL_GPT2 || model_both_ways(m)));
}

static int take(struct config *c, const struct conf *f, struct config *theirs, const char *key, bool shape,
                const char *dir, struct err *e)
{
    const struct conf_row *r = key_row(key);
    char mine[64], other[64];
    if (key_given(f, r, key_value(r, c))) {
        if (key_same(r, key_value(r, c), key_value(r, theirs)) || !shape) return OK;
        return conf_error(f, e, r->path,
                          "%s, but model.from has %s, and the shapes of its weights (%s) follow from it; leave the key "
                          "out",
                          key_show(r, key_value(r, c), mine), key_show(r, key_value(r, theirs), other), dir);
    }
    memcpy(key_value(r, c), key_value(r, theirs), key_bytes(r));
    return OK;
}

/* A run is as long as the model's positions, where the config does not say otherwise. */
static int take_length(struct config *c, const struct conf *f, const struct model_config *m, const char *dir,
                       struct err *e)
{
    bool given = strcmp(conf_where(f, "model.seq_len"), "default") != 0;
    if (c->model.seq_len <= c->model.max_positions) return OK;
    if (!given) {
        c->model.seq_len = c->model.max_positions;
        return OK;
    }
    if (key_given(f, key_row("model.max_positions"), &c->model.max_positions))
        return OK; /* the two keys are compared later */
    if (m->family == MODEL_GPT2 || model_encodes(m))
        return conf_error(f, e, "model.seq_len", "%lld, but the table of positions of %s ends; choose at most %lld",
                          (long long)c->model.seq_len, dir, (long long)m->max_positions);
    return conf_error(f, e, "model.seq_len",
                      "%lld is longer than what %s was made for; choose at most %lld, or, to train it for longer "
                      "texts, model.max_positions: %lld beside it",
                      (long long)c->model.seq_len, dir, (long long)m->max_positions, (long long)c->model.seq_len);
}

static void take_ends(struct config *c, const struct hf_model *h)
{
    c->from.bos = h->bos;
    c->from.n_eos = h->n_eos;
    c->from.start = h->start;
    c->from.pad = h->pad;
    for (int i = 0; i < h->n_eos; i++) c->from.eos[i] = h->eos[i];
}

int from_take(struct config *c, const struct conf *f, const struct weights *w, struct err *e)
{
    struct hf_model h;
    int rc = weights_model(w, &h, e);
    if (rc) return rc;
    const struct model_config *m = &h.model;
    struct config theirs = filled(c, m);
    if (m->scores && c->train.objective != OBJECTIVE_REWARD)
        return conf_error(f, e, "model.from",
                          "%s is a reward model, which tells no next token; choose train.objective: reward, or the "
                          "model that it was made of",
                          weights_path(w));
    if (c->train.objective == OBJECTIVE_REWARD) theirs.model.tie_embeddings = false; /* it has no output matrix */
    if (model_encodes(m) && !m->classes && c->model.classes) {                       /* a new head: start_weights.h */
        theirs.model.classes = c->model.classes;
        theirs.model.tie_embeddings = false;
    }
    const struct conf_row *depth = key_row("model.mtp.depth");
    if (key_given(f, depth, &c->model.mtp.depth) && c->model.mtp.depth < m->mtp.depth)
        theirs.model.mtp.depth = c->model.mtp.depth; /* modules may be left out, the last ones first */
    rc = take(c, f, &theirs, "model.family", true, weights_path(w), e);
    for (const struct number *n = model_numbers; !rc && n->row.path; n++)
        if (says(n)) rc = take(c, f, &theirs, n->row.path, is_shape(n, m), weights_path(w), e);
    if (!rc) rc = take_length(c, f, m, weights_path(w), e);
    if (!rc) take_ends(c, &h);
    return rc;
}

/* ---- what is said ---- */
static void say_dropout(const struct hf_model *h, const struct weights *w, const struct config *c)
{
    double theirs = h->model.dropout > h->attention_dropout ? h->model.dropout : h->attention_dropout;
    if (theirs != c->model.dropout)
        log_info("%s has dropout %g; training goes by model.dropout, which is %g", weights_path(w), theirs,
                 c->model.dropout);
}

static void say_tokenizer(const struct weights *w, const struct tokenizer *t)
{
    struct tokenizer *own;
    struct err ignored;
    if (source_tokenizer(w, &own, &ignored)) return;
    if (tokenizer_fingerprint(own) != tokenizer_fingerprint(t))
        log_warn("data.tokenizer is not the tokenizer that %s has: to its weights the ids mean something else",
                 weights_path(w));
    tokenizer_free(own);
}

void from_say(const struct weights *w, const struct config *c, const struct tokenizer *t)
{
    struct hf_model h;
    struct err ignored;
    if (weights_model(w, &h, &ignored)) return;
    struct config mine = *c, theirs = filled(c, &h.model);
    if (c->model.scores) theirs.model.tie_embeddings = false; /* the output matrix is left out */
    char a[64], b[64];
    for (const struct number *n = model_numbers; n->row.path; n++) {
        const struct conf_row *r = key_row(n->row.path);
        if (says(n) && !key_same(r, key_value(r, &mine), key_value(r, &theirs)))
            log_info("%s is %s here, %s in %s: the config's counts", r->path, key_show(r, key_value(r, &mine), a),
                     key_show(r, key_value(r, &theirs), b), weights_path(w));
    }
    if (c->model.scores && !h.model.scores) log_info("%s has no score: score.weight is drawn anew", weights_path(w));
    if (model_unmasks(&h.model) && model_tells(&c->model))
        log_info("%s tells hidden tokens: the head of model.classes is drawn anew", weights_path(w));
    say_dropout(&h, w, c);
    if (t) say_tokenizer(w, t);
    if (t) hf_tokenizer_say(w);
}
