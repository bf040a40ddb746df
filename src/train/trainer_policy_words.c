/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "train/trainer_policy_impl.h"

static bool is_end(const struct trainer *t, int32_t id)
{
    for (int i = 0; i < t->cfg.from.n_eos; i++)
        if (t->cfg.from.eos[i] == id) return true;
    return id == tokenizer_eos(t->tokenizer);
}

/* The text of an answer, without what ended it. */
static void text_of(const struct trainer *t, int64_t i, struct str *out)
{
    const struct policy *p = t->policy;
    const struct rollout_answer *a = &p->answer[i];
    const int32_t *ids = p->ids + i * p->most;
    struct decoder d = {.t = t->tokenizer};
    int64_t n = a->n && a->ended && is_end(t, ids[a->n - 1]) ? a->n - 1 : a->n;
    str_clear(out);
    decoder_pass(&d, a->prompt, a->n_prompt);
    for (int64_t k = 0; k < n; k++) decoder_push(&d, ids[k], out);
    decoder_end(&d, out);
    const char *const *stop = t->cfg.train.grpo.stop.items, *first = NULL;
    for (int k = 0; a->ended && out->n && k < t->cfg.train.grpo.stop.n; k++) {
        const char *at = strstr(out->p, stop[k]);
        if (at && (!first || at < first)) first = at;
    }
    if (first) out->n = (size_t)(first - out->p);
    if (out->p) out->p[out->n] = 0;
}

/* What is told of an answer, with the record of its prompt; the object is left open. */
static void put_answer(struct trainer *t, int64_t i, struct str *text, struct json_out *o)
{
    struct policy_prompt q = policy_prompt_of(t, i);
    text_of(t, i, text);
    json_begin_object(o, NULL);
    json_put_string(o, "answer", str_text(text));
    json_put_bool(o, "ended", t->policy->answer[i].ended);
    json_put_int(o, "tokens", t->policy->answer[i].n);
    json_put_int(o, "step", t->step + 1);
    json_put_int(o, "group", i / t->policy->group);
    str_puts(o->s, ",\"record\":");
    str_add(o->s, q.record, q.record_n);
}

void policy_put_question(struct trainer *t, int64_t i, struct str *text, struct str *out)
{
    struct json_out o = {.s = out};
    put_answer(t, i, text, &o);
    json_end_object(&o);
    str_putc(out, '\n');
}

/* ---- for people ---- */

static void put_nats(struct json_out *o, const char *name, const double *nats, int64_t n)
{
    json_begin_array(o, name);
    for (int64_t k = 0; k < n; k++) json_put_real_digits(o, NULL, nats[k] > 0 ? -nats[k] : 0, 17);
    json_end_array(o);
}

static void put_told(struct trainer *t, int64_t i, struct str *text, struct str *out)
{
    const struct policy *p = t->policy;
    struct json_out o = {.s = out};
    int64_t n = p->answer[i].n;
    put_answer(t, i, text, &o);
    json_put_int(&o, "prompt_tokens", p->answer[i].n_prompt);
    json_put_real_digits(&o, "reward", p->reward[i], 17);
    json_put_real_digits(&o, "advantage", p->advantage[i], 17);
    json_begin_array(&o, "ids");
    for (int64_t k = 0; k < n; k++) json_put_int(&o, NULL, p->ids[i * p->most + k]);
    json_end_array(&o);
    put_nats(&o, "logprobs_written", p->old + i * p->most, n);
    put_nats(&o, "logprobs", policy_now(t, i), n);
    if (p->rules.beta > 0) put_nats(&o, "logprobs_reference", p->reference + i * p->most, n);
    json_end_object(&o);
    str_putc(out, '\n');
}

int trainer_policy_tell(struct trainer *t, struct err *e)
{
    int64_t every = t->cfg.train.grpo.tell_every;
    char name[64];
    if (!t->leads || !every || (t->step + 1) % every) return OK;
    struct str lines = {0}, text = {0};
    for (int64_t i = 0; i < t->policy->n; i++) put_told(t, i, &text, &lines);
    snprintf(name, sizeof name, "step-%08lld.jsonl", (long long)t->step + 1);
    char *dir = fs_join(t->cfg.run.dir, "answers"), *path = fs_join(dir, name);
    int rc = fs_mkdirs(dir, e);
    if (!rc) rc = fs_write_atomic(path, str_text(&lines), lines.n, e);
    xfree(path);
    xfree(dir);
    str_free(&lines);
    str_free(&text);
    return rc;
}
