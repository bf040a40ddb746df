/* SPDX-License-Identifier: Apache-2.0 */
/* removals_json.c: removals as JSON, for `--json` and for going on after an interruption, and back.
 *
 * What comes back is compared with the filters that there are: another number of them, another name, a count below zero
 * are ERR_CORRUPT, since they are no writing of ours.
 */
#include "curate/removals.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static void put_counts(struct json_out *j, const char *key, const int64_t *count)
{
    json_begin_array(j, key);
    for (int i = 0; i < REMOVALS_BINS + 2; i++) json_put_int(j, NULL, count[i]);
    json_end_array(j);
}

static void put_rule(struct json_out *j, const struct filter_rule *r, const struct rule_removals *t)
{
    json_begin_object(j, NULL);
    json_put_string(j, "rule", r->name);
    json_put_int(j, "dropped", t->dropped);
    json_put_int(j, "dropped_bytes", t->dropped_bytes);
    json_put_real(j, "lo", r->lo);
    json_put_real(j, "hi", r->hi);
    json_put_bool(j, "log", r->log);
    put_counts(j, "histogram_kept", t->values.kept);
    put_counts(j, "histogram_dropped", t->values.dropped);
    json_end_object(j);
}

static void put_samples(struct json_out *j, const char *key, const struct filter *f, const struct samples *l)
{
    json_begin_array(j, key);
    for (int i = 0; i < l->n; i++) {
        const struct sample *s = &l->s[i];
        char rank[17];
        json_begin_object(j, NULL);
        json_put_string(j, "rank", hash64_print(rank, s->rank));
        json_put_int(j, "index", s->origin.index);
        json_put_string(j, "source", s->origin.source);
        json_put_int(j, "document", s->origin.number);
        json_put_int(j, "offset", s->origin.offset);
        json_put_int(j, "bytes", s->bytes);
        if (s->rule >= 0) json_put_string(j, "rule", f->rule[s->rule].name);
        if (s->rule >= 0) json_put_real(j, "value", s->value);
        json_put_string(j, "text", s->text);
        json_end_object(j);
    }
    json_end_array(j);
}

void removals_write(const struct removals *t, struct json_out *j)
{
    json_begin_array(j, "filters");
    for (int i = 0; i < t->n; i++) {
        const struct filter *f = t->uses[i].filter;
        const struct use_removals *u = &t->use[i];
        json_begin_object(j, NULL);
        json_put_string(j, "filter", f->kind.name);
        json_put_string(j, "where", t->uses[i].where);
        json_put_int(j, "seen", u->seen);
        json_put_int(j, "seen_bytes", u->seen_bytes);
        json_put_int(j, "dropped", u->dropped);
        json_put_int(j, "dropped_bytes", u->dropped_bytes);
        json_put_int(j, "changed", u->changed);
        json_put_int(j, "removed_bytes", u->removed_bytes);
        json_put_int(j, "removed_pieces", u->removed_pieces);
        json_begin_array(j, "rules");
        for (int k = 0; k < f->n_rules; k++) put_rule(j, &f->rule[k], &u->rule[k]);
        json_end_array(j);
        put_samples(j, "samples", f, &u->gone);
        put_samples(j, "changes", f, &u->edited);
        json_end_object(j);
    }
    json_end_array(j);
}

/* ---- and back ---- */

static int strange(const char *what, const char *filter, const char *member, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: filters: %s: its member %s is not what was written", what, filter, member);
}

static int get_counts(const struct json *o, const char *key, int64_t *count, const char *what, const char *filter,
                      struct err *e)
{
    const struct json *list = json_get(o, key);
    if (!list || json_kind(list) != JSON_ARRAY || json_size(list) != REMOVALS_BINS + 2)
        return strange(what, filter, key, e);
    for (int i = 0; i < REMOVALS_BINS + 2; i++) {
        count[i] = json_int(json_at(list, (size_t)i), -1);
        if (count[i] < 0) return strange(what, filter, key, e);
    }
    return OK;
}

static int get_rule(const struct json *o, const struct filter_rule *r, struct rule_removals *t, const char *what,
                    const char *filter, struct err *e)
{
    const char *name = json_string(json_get(o, "rule"), NULL, "");
    if (strcmp(name, r->name) != 0) return strange(what, filter, "rules", e);
    int code = json_need_int(o, "dropped", 0, INT64_MAX, &t->dropped, what, e);
    if (!code) code = json_need_int(o, "dropped_bytes", 0, INT64_MAX, &t->dropped_bytes, what, e);
    if (!code) code = get_counts(o, "histogram_kept", t->values.kept, what, filter, e);
    if (!code) code = get_counts(o, "histogram_dropped", t->values.dropped, what, filter, e);
    return code;
}

static int get_sample(const struct json *o, const struct filter *f, struct sample *s, const char *what, struct err *e)
{
    const char *rank = json_string(json_get(o, "rank"), NULL, ""), *source, *text, *rule;
    if (hash64_parse(rank, &s->rank)) return strange(what, f->kind.name, "rank", e);
    int code = json_need_int(o, "index", 0, INT64_MAX, &s->origin.index, what, e);
    if (!code) code = json_need_int(o, "document", 0, INT64_MAX, &s->origin.number, what, e);
    if (!code) code = json_need_int(o, "offset", 0, INT64_MAX, &s->origin.offset, what, e);
    if (!code) code = json_need_int(o, "bytes", 0, INT64_MAX, &s->bytes, what, e);
    if (!code) code = json_need_string(o, "source", &source, what, e);
    if (!code) code = json_need_string(o, "text", &text, what, e);
    if (code) return code;
    s->rule = FILTER_KEEPS;
    s->value = json_real(json_get(o, "value"), 0);
    rule = json_string(json_get(o, "rule"), NULL, NULL);
    for (int i = 0; rule && i < f->n_rules; i++)
        if (!strcmp(rule, f->rule[i].name)) s->rule = i;
    if (rule && s->rule < 0) return strange(what, f->kind.name, "samples", e);
    s->origin.source = xstrdup(source);
    s->text = xstrdup(text);
    return OK;
}

static int get_samples(const struct json *o, const char *key, const struct filter *f, struct samples *l,
                       const char *what, struct err *e)
{
    const struct json *list = json_get(o, key);
    if (!list || json_kind(list) != JSON_ARRAY || json_size(list) > REMOVALS_SAMPLES)
        return strange(what, f->kind.name, key, e);
    for (size_t i = 0; i < json_size(list); i++) {
        int code = get_sample(json_at(list, i), f, &l->s[i], what, e);
        if (code) return code;
        l->n++;
    }
    return OK;
}

static int get_use(const struct json *o, const struct filter *f, struct use_removals *u, const char *what,
                   struct err *e)
{
    if (strcmp(json_string(json_get(o, "filter"), NULL, ""), f->kind.name) != 0)
        return strange(what, f->kind.name, "filter", e);
    int code = json_need_int(o, "seen", 0, INT64_MAX, &u->seen, what, e);
    if (!code) code = json_need_int(o, "seen_bytes", 0, INT64_MAX, &u->seen_bytes, what, e);
    if (!code) code = json_need_int(o, "dropped", 0, INT64_MAX, &u->dropped, what, e);
    if (!code) code = json_need_int(o, "dropped_bytes", 0, INT64_MAX, &u->dropped_bytes, what, e);
    if (!code) code = json_need_int(o, "changed", 0, INT64_MAX, &u->changed, what, e);
    if (!code) code = json_need_int(o, "removed_bytes", INT64_MIN, INT64_MAX, &u->removed_bytes, what, e);
    if (!code) code = json_need_int(o, "removed_pieces", 0, INT64_MAX, &u->removed_pieces, what, e);
    const struct json *rules = json_get(o, "rules");
    if (!code && (!rules || json_kind(rules) != JSON_ARRAY || json_size(rules) != (size_t)f->n_rules))
        code = strange(what, f->kind.name, "rules", e);
    for (int i = 0; i < f->n_rules && !code; i++)
        code = get_rule(json_at(rules, (size_t)i), &f->rule[i], &u->rule[i], what, f->kind.name, e);
    if (!code) code = get_samples(o, "samples", f, &u->gone, what, e);
    if (!code) code = get_samples(o, "changes", f, &u->edited, what, e);
    return code;
}

int removals_read(struct removals *t, const struct json *filters, const char *what, struct err *e)
{
    removals_clear(t);
    if (!filters || json_kind(filters) != JSON_ARRAY || json_size(filters) != (size_t)t->n)
        return err_set(e, ERR_CORRUPT, "%s: filters: wanted a list of %d", what, t->n);
    for (int i = 0; i < t->n; i++) {
        int code = get_use(json_at(filters, (size_t)i), t->uses[i].filter, &t->use[i], what, e);
        if (code) return code;
    }
    return OK;
}
