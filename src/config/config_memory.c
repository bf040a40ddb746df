/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_memory.h"

#include <string.h>

#include "base/str.h"
#include "config/config_codec.h"

static const char *word_of(const struct config *c, int i)
{
    return ((const char *const *)c->memory.recompute.items)[i];
}

bool config_recompute_auto(const struct config *c)
{
    return c->memory.recompute.n == 1 && !strcmp(word_of(c, 0), "auto");
}

static int refuse_word(const struct conf *f, const char *got, struct err *e)
{
    static const char *const whole[] = {"none", "full", "selective", "auto"};
    const char *words[16];
    size_t n = 0;
    struct str all = {0};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) words[n++] = whole[i];
    for (const struct recompute_group *g = recompute_groups; g->name; g++) words[n++] = g->name;
    for (size_t i = 0; i < n; i++) str_printf(&all, "%s%s", i ? ", " : "", words[i]);
    const char *near = str_nearest(got, words, (int)n);
    int rc = conf_error(f, e, "memory.recompute", "wanted any of %s; got %s%s%s%s", str_text(&all), got,
                        near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    str_free(&all);
    return rc;
}

static int resolve_recompute(struct config *c, const struct conf *f, struct err *e)
{
    struct recompute *r = &c->memory.chosen;
    *r = (struct recompute){.layers = c->memory.recompute_layers};
    if (config_recompute_auto(c)) {
        if (!c->memory.recompute_layers) return OK;
        return conf_error(f, e, "memory.recompute_layers",
                          "%lld beside memory.recompute: auto, which chooses it; leave it out",
                          (long long)c->memory.recompute_layers);
    }
    if (!c->memory.recompute.n)
        return conf_error(f, e, "memory.recompute", "an empty list; none is the word for nothing");
    for (int i = 0; i < c->memory.recompute.n; i++) {
        uint64_t more;
        const char *word = word_of(c, i);
        bool alone = !strcmp(word, "none") || !strcmp(word, "auto") || !strcmp(word, "full");
        if (alone && c->memory.recompute.n > 1)
            return conf_error(f, e, "memory.recompute", "%s stands alone; leave out the other words, or it", word);
        if (recompute_named(word, &more)) return refuse_word(f, word, e);
        r->again |= more;
    }
    return OK;
}

static int resolve_limit(struct config *c, const struct conf *f, struct err *e)
{
    c->memory.limit_bytes = 0;
    if (!c->memory.limit || !str_to_bytes(c->memory.limit, &c->memory.limit_bytes)) return OK;
    return conf_error(f, e, "memory.limit", "wanted bytes, such as 800MiB or 24GiB, got '%s'", c->memory.limit);
}

int64_t config_loss_rows(const struct config *c)
{
    if (c->memory.loss_chunk) return c->memory.loss_chunk;
    int64_t row_bytes =
        (model_tells(&c->model) ? c->model.classes : c->model.vocab) * (int64_t)dtype_bytes(config_dtype(c));
    int64_t rows = (128 << 20) / row_bytes / 64 * 64;
    return rows < 64 ? 64 : rows;
}

/* Each chunk is a stretch of the program of its own. */
static int resolve_loss_chunk(const struct config *c, const struct conf *f, struct err *e)
{
    enum { MOST = 16384 };
    int64_t here = (c->model.seq_len + c->parallel.cp - 1) / c->parallel.cp, tokens = c->batch.micro * here,
            rows = config_loss_rows(c);
    if (tokens / rows < MOST) return OK;
    if (c->memory.loss_chunk && tokens / MOST < 1 << 24)
        return conf_error(f, e, "memory.loss_chunk",
                          "%lld cuts the %lld tokens of a microbatch into %lld chunks, of at most %d; choose at "
                          "least %lld",
                          (long long)rows, (long long)tokens, (long long)(tokens / rows), MOST,
                          (long long)(tokens / MOST + 1));
    bool one = here / rows >= MOST; /* is too much */
    return conf_error(f, e, one ? "model.seq_len" : "batch.micro",
                      "%lld x %lld tokens are %lld chunks of %lld tokens of the loss (memory.loss_chunk), of at most "
                      "%d; choose at most %lld (or more ranks of parallel.cp)",
                      (long long)c->batch.micro, (long long)c->model.seq_len, (long long)(tokens / rows),
                      (long long)rows, MOST,
                      (long long)(one ? (MOST * rows - 1) / c->batch.micro * c->parallel.cp
                                      : (MOST * rows - 1) / here));
}

int config_resolve_memory(struct config *c, const struct conf *f, struct err *e)
{
    int rc = resolve_loss_chunk(c, f, e);
    if (!rc) rc = resolve_recompute(c, f, e);
    if (!rc) rc = resolve_limit(c, f, e);
    if (!rc && config_recompute_auto(c) && !c->memory.limit_bytes)
        rc = conf_error(f, e, "memory.recompute",
                        "auto stays below memory.limit, which is not given; choose bytes of a "
                        "rank, such as 24GiB");
    return rc;
}

bool config_zero_auto(const struct config *c) { return c->parallel.may_zero != 0; }

void config_resolve_zero(struct config *c, const struct conf *f)
{
    struct config one = *c;
    c->parallel.may_zero = 0;
    if (!config_recompute_auto(c) || strcmp(conf_where(f, "parallel.zero"), "default") || c->parallel.servers ||
        c->parallel.dp_shard * c->parallel.cp == 1)
        return;
    for (int level = 0; level <= 3; level++) {
        one.parallel.zero = level;
        if (config_codec_fits(&one)) c->parallel.may_zero |= 1u << level;
    }
}
