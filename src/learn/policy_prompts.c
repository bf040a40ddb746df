/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/policy_prompts.h"

#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat.h"
#include "data/sampler.h"
#include "source/source.h"

struct prompt_at { /* of a prompt in what all have */
    size_t ids, record, record_n;
    int64_t n;
};

struct policy_prompts {
    struct tokens ids;
    struct str records;
    struct prompt_at *at;
    int64_t n, room, most;
    uint64_t seed;
    bool shuffled;
};

struct reader {
    struct policy_prompts *p;
    const struct tokenizer *t;
    struct source *source;
    struct chat *chat; /* NULL: no template is named */
    struct chat_work *work;
    struct tokens ids;
    struct str where;
};

static const char *where(struct reader *r)
{
    str_clear(&r->where);
    source_tell_place(r->source, &r->where);
    return str_text(&r->where);
}

static int encode(struct reader *r, const struct json *record, struct err *e)
{
    const struct json *prompt = json_get(record, "prompt"), *list = prompt ? prompt : json_get(record, "messages");
    size_t n;
    const char *text = json_string(prompt, &n, NULL);
    r->ids.n = 0;
    if (text && json_string(json_get(record, "system"), NULL, NULL) &&
        *json_string(json_get(record, "system"), NULL, ""))
        return err_set(e, ERR_CORRUPT,
                       "%s: has a member \"system\" beside a prompt that is a text, which is read as it is, without a "
                       "template; write the prompt as messages",
                       where(r));
    if (text) {
        int rc = n ? tokenizer_encode_text(r->t, text, n, &r->ids, e) : OK;
        if (rc) err_prefix(e, "%s", where(r));
        if (!rc && !r->ids.n) rc = err_set(e, ERR_CORRUPT, "%s: the prompt is empty", where(r));
        return rc;
    }
    if (!list || json_kind(list) != JSON_ARRAY)
        return err_set(e, ERR_CORRUPT,
                       "%s: wanted a record with \"prompt\", a text or a list of messages, or with a list \"messages\"",
                       where(r));
    if (!r->chat)
        return err_set(e, ERR_REQUEST, "%s: messages are written by a template; name one (data.train: chat)", where(r));
    size_t last = json_size(list);
    const char *role = last ? json_string(json_get(json_at(list, last - 1), "role"), NULL, "") : "";
    if (!strcmp(role, "assistant"))
        return err_set(e, ERR_CORRUPT, "%s: the last message is the assistant's, and it is to answer", where(r));
    return chat_asked(r->work, record, where(r), &r->ids, e);
}

static void keep(struct policy_prompts *p, const struct tokens *ids, const char *record, size_t n)
{
    if (p->n == p->room) {
        p->room = p->room ? 2 * p->room : 256;
        p->at = xrealloc(p->at, to_size(p->room) * sizeof *p->at);
    }
    p->at[p->n++] = (struct prompt_at){.ids = to_size(p->ids.n), .record = p->records.n, .record_n = n, .n = ids->n};
    for (int64_t i = 0; i < ids->n; i++) tokens_push(&p->ids, ids->ids[i]);
    str_add(&p->records, record, n);
}

static int take(struct reader *r, int64_t vocab, struct err *e)
{
    size_t n;
    const char *line = source_line(r->source, &n);
    struct json *record = NULL;
    int rc = line ? json_parse_published(&record, line, n, where(r), e)
                  : err_set(e, ERR_REQUEST, "%s: wanted a .jsonl file of records", where(r));
    if (!rc) rc = encode(r, record, e);
    for (int64_t i = 0; !rc && i < r->ids.n; i++)
        if (r->ids.ids[i] < 0 || r->ids.ids[i] >= vocab)
            rc = err_set(e, ERR_REQUEST, "%s: token %d is not below the vocabulary of %lld: another tokenizer?",
                         where(r), r->ids.ids[i], (long long)vocab);
    if (!rc && r->ids.n > r->p->most)
        rc =
            err_set(e, ERR_CORRUPT,
                    "%s: the prompt is %lld tokens long; beside answers of train.grpo.tokens there is room for %lld of "
                    "model.seq_len; shorten it, or choose fewer or a longer sequence",
                    where(r), (long long)r->ids.n, (long long)r->p->most);
    while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (!rc) keep(r->p, &r->ids, line, n);
    json_free(record);
    return rc;
}

static int read_source(struct policy_prompts *p, const struct config *c, const struct config_source *s,
                       const struct tokenizer *t, const atomic_int *give_up, struct err *e)
{
    struct reader r = {.p = p, .t = t};
    struct source_options how = {.whole_records = true};
    int rc = source_open_with(&r.source, &s->path, 1, &how, e), got = 1;
    if (!rc && s->chat) {
        struct chat_rules rules = {.template_name = s->chat, .tokenizer_path = c->data.tokenizer, .day = s->date};
        rc = chat_open(&r.chat, &rules, t, e);
        if (!rc) r.work = chat_work_new(r.chat);
    }
    while (!rc && (got = source_next(r.source, e)) > 0) {
        rc = take(&r, c->model.vocab, e);
        if (!rc && give_up && atomic_load(give_up)) rc = err_set(e, ERR_SIGNAL, "stopped while prompts were read");
    }
    if (!rc && got < 0) rc = got;
    chat_work_free(r.work);
    chat_close(r.chat);
    source_close(r.source);
    tokens_free(&r.ids);
    str_free(&r.where);
    return rc;
}

int policy_prompts_open(struct policy_prompts **out, const struct config *c, const struct tokenizer *t,
                        int64_t most_tokens, const atomic_int *give_up, struct err *e)
{
    const struct config_source *items = c->data.train.items;
    struct policy_prompts *p = xcalloc(1, sizeof *p);
    int rc = OK;
    p->most = most_tokens;
    p->seed = (uint64_t)c->data.seed;
    p->shuffled = c->data.order == ORDER_SHUFFLED;
    for (int i = 0; !rc && i < c->data.train.n; i++) rc = read_source(p, c, &items[i], t, give_up, e);
    if (!rc && !p->n) rc = err_set(e, ERR_REQUEST, "%s: holds no record", items[0].path);
    *out = rc ? NULL : p;
    if (rc) policy_prompts_close(p);
    return rc;
}

void policy_prompts_close(struct policy_prompts *p)
{
    if (!p) return;
    tokens_free(&p->ids);
    str_free(&p->records);
    xfree(p->at);
    xfree(p);
}

int64_t policy_prompts_n(const struct policy_prompts *p) { return p->n; }
int64_t policy_prompts_tokens(const struct policy_prompts *p) { return p->ids.n; }

uint64_t policy_prompts_fingerprint(const struct policy_prompts *p)
{
    uint64_t of[3] = {hash64(p->records.p, p->records.n), hash64(p->ids.ids, to_size(p->ids.n) * sizeof *p->ids.ids),
                      (uint64_t)p->n};
    return hash64(of, sizeof of);
}

struct policy_prompt policy_prompts_at(const struct policy_prompts *p, int64_t k)
{
    const struct prompt_at *x = &p->at[order_pick(p->seed, 0, p->shuffled, p->n, k, NULL)];
    return (struct policy_prompt){p->ids.ids + x->ids, x->n, p->records.p + x->record, x->record_n};
}
