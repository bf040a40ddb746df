/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of texts under way; the first is told when it is done, and prompts are read while there is room for them. */
#include "decode/generate_file.h"

#include <string.h>

#include "base/mem.h"
#include "decode/kept_answer.h"
#include "decode/prompts.h"

struct text {
    int64_t index;
    char *prompt;
    struct kept_answer answer;
    struct text *next;
};

struct writer_of_many {
    const struct generate_file_options *o;
    struct decoding *d;
    const struct tokenizer *t;
    struct batching *a;
    struct prompts *prompts;
    struct text *first, **last;
    struct tokens ids;
};

uint64_t generate_file_seed(uint64_t seed, int64_t index) { return seed + (uint64_t)index * 0x9E3779B97F4A7C15u; }

/* 1: one more is under way; 0: there are none. */
static int ask_next(struct writer_of_many *w, struct err *e)
{
    const char *prompt;
    int64_t id;
    int got = prompts_next(w->prompts, &prompt, e);
    if (got <= 0) return got;
    struct text *x = xcalloc(1, sizeof *x);
    x->index = prompts_index(w->prompts);
    x->prompt = xstrdup(prompt);
    *w->last = x;
    w->last = &x->next;
    w->ids.n = 0;
    int rc = tokenizer_encode_text(w->t, prompt, strlen(prompt), &w->ids, e);
    struct answer_spec s = {.ids = w->ids.ids,
                            .n = w->ids.n,
                            .max_tokens = w->o->max_tokens,
                            .sample = w->o->sample,
                            .before = w->o->before,
                            .stop = w->o->stop,
                            .n_stop = w->o->n_stop,
                            .top = -1};
    kept_answer_keep(&s, &x->answer);
    s.sample.seed = generate_file_seed(s.sample.seed, x->index);
    if (!rc) rc = batching_add(w->a, &s, &id, e);
    return rc ? rc : 1;
}

static void text_free(struct text *x)
{
    kept_answer_free(&x->answer);
    xfree(x->prompt);
    xfree(x);
}

static int tell_first(struct writer_of_many *w, many_text_fn *tell, void *ctx, struct err *e)
{
    struct text *x = w->first;
    struct many_text t = {x->index,
                          x->prompt,
                          str_text(&x->answer.said),
                          x->answer.said.n,
                          answer_end_name(x->answer.why),
                          x->answer.counts};
    int rc = x->answer.err.code ? (*e = x->answer.err, x->answer.err.code) : tell(ctx, &t, e);
    w->first = x->next;
    if (!w->first) w->last = &w->first;
    text_free(x);
    return rc;
}

int generate_file(struct decoding *d, const struct tokenizer *t, const struct generate_file_options *o,
                  many_text_fn *tell, void *ctx, struct err *e)
{
    struct writer_of_many w = {.o = o, .d = d, .t = t};
    struct prompts_options p = {.path = o->path,
                                .template = o->template,
                                .name = "--template",
                                .tokenizer = t,
                                .most_tokens = decoding_room(d),
                                .vocab = decoding_model(d)->vocab};
    int more = 1, rc = prompts_open(&w.prompts, &p, e);
    w.last = &w.first;
    w.a = batching_new(d, t);
    while (!rc && (more || w.first)) {
        while (more > 0 && batching_waiting(w.a) + batching_writing(w.a) < 2 * decoding_sequences(d))
            more = ask_next(&w, e);
        rc = more < 0 ? more : batching_step(w.a, e);
        while (!rc && w.first && w.first->answer.done) rc = tell_first(&w, tell, ctx, e);
    }
    batching_free(w.a);
    for (struct text *x = w.first, *next; x; x = next) {
        next = x->next;
        text_free(x);
    }
    prompts_close(w.prompts);
    tokens_free(&w.ids);
    return rc;
}
