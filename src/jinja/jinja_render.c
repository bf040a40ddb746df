/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_render.c: statements, scopes, and the rendering as a whole.
 *
 * A scope is opened by each round of a loop, a macro's call, {% generation %} and a {% set %} block; {% if %} opens
 * none. Names are looked for from the inside out and set in the innermost, as in jinja2: what a loop sets is gone after
 * it, and a namespace is how a template keeps something.
 */
#include <stdio.h>
#include <string.h>

#include "jinja/jinja_run.h"

/* -- scopes -------------------------------------------------------------------------------------------------- */

const struct jv *jlook(struct jwork *w, const struct jframe *f, const char *name)
{
    const struct jv *found = NULL;
    int64_t looked = 0;
    for (; f && !found; f = f->up, looked++)
        for (const struct jbinding *b = f->first; b && !found; b = b->next, looked++)
            if (!strcmp(b->name, name)) found = &b->value;
    return jwork_add(w, looked / 8) ? found : NULL;
}

void jset(struct jrun *r, const char *name, struct jv value)
{
    struct jbinding *b = r->frame->first;
    int64_t looked = 0;
    for (; b && strcmp(b->name, name) != 0; b = b->next) looked++;
    (void)jwork_add(&r->work, looked / 8);
    if (!b) {
        b = jalloc(r, sizeof *b);
        *b = (struct jbinding){.next = r->frame->first, .name = name};
        r->frame->first = b;
    }
    b->value = value;
}

static struct jframe *open_frame(struct jrun *r, struct jframe *up)
{
    struct jframe *f = jalloc(r, sizeof *f), *old = r->frame;
    f->up = up;
    r->frame = f;
    return old;
}

/* To a name, to NAME.NAME of a namespace, or to several names. */
static void assign(struct jrun *r, const struct jnode *target, struct jv value)
{
    if (r->code) return;
    if (target->kind == JN_NAME) {
        jset(r, target->name, value);
        return;
    }
    if (target->kind == JN_ATTR) {
        const struct jv *space = jlook(&r->work, r->frame, target->a->name);
        if (!space || space->kind != JV_NAMESPACE) {
            jfail(r, target, "%.60s.%.60s: only a namespace() can be written to", target->a->name, target->name);
            return;
        }
        if (jtake(r, target, sizeof(struct jpair)))
            jmap_put(&r->work, r->arena, space->map, jv_word(target->name), value);
        return;
    }
    struct jlist items = jitems(r, target, &value);
    int64_t wanted = 0, i = 0;
    for (const struct jnode *n = target->items; n; n = n->next) wanted++;
    if (items.n != wanted) {
        jfail(r, target, "%lld values for %lld names", (long long)items.n, (long long)wanted);
        return;
    }
    for (const struct jnode *n = target->items; n && !r->code; n = n->next) assign(r, n, items.item[i++]);
}

/* What the body puts out, as a value, in a scope of its own above `up`. */
static struct jv capture(struct jrun *r, const struct jnode *n, struct jframe *up)
{
    struct jbuild own = {0}, *out = r->out;
    bool captured = r->captured;
    int loops = r->loops;
    struct jframe *frame = r->frame;
    r->out = &own;
    r->captured = true;
    r->loops = 0;
    r->frame = up;
    jexecute(r, n->body);
    r->frame = frame;
    r->loops = loops;
    r->captured = captured;
    r->out = out;
    return jdone(r, n, &own);
}

/* -- statements ---------------------------------------------------------------------------------------------- */

static void put_out(struct jrun *r, const struct jnode *n, const struct jv *v)
{
    jprint(r, n, r->out, v);
    if (r->out->text.n > JINJA_BYTES) jfail(r, n, "more than %d MiB put out", JINJA_BYTES >> 20);
}

static void run_text(struct jrun *r, const struct jnode *n) { put_out(r, n, &n->value); }

static void run_out(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    if (!r->code) put_out(r, n->a, &v);
}

static void run_if(struct jrun *r, const struct jnode *n)
{
    for (;;) {
        struct jv v = jeval(r, n->a);
        if (r->code) return;
        if (jv_true(&v)) {
            jexecute(r, n->body);
            return;
        }
        if (n->op != 'e') {
            jexecute(r, n->other);
            return;
        }
        n = n->other;
    }
}

/* The items that the loop's condition keeps. */
static struct jlist chosen(struct jrun *r, const struct jnode *n, struct jlist all)
{
    struct jlist kept = {0};
    if (!n->c || !jtake(r, n, to_size(all.n) * sizeof(struct jv))) return all;
    kept.item = jalloc(r, to_size(all.n) * sizeof *kept.item);
    for (int64_t i = 0; i < all.n && !r->code; i++) {
        struct jframe *old = open_frame(r, r->frame);
        assign(r, n->a, all.item[i]);
        struct jv keep = jeval(r, n->c);
        r->frame = old;
        if (!r->code && jv_true(&keep)) kept.item[kept.n++] = all.item[i];
    }
    return kept;
}

static void run_for(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->b);
    if (r->code) return;
    struct jlist items = chosen(r, n, jitems(r, n->b, &v));
    struct jv *changed = jalloc(r, sizeof *changed);
    *changed = jv_undefined(NULL);
    r->loops++;
    for (int64_t i = 0; i < items.n && !r->code; i++) {
        struct jloop *loop = jalloc(r, sizeof *loop);
        *loop = (struct jloop){.items = items, .at = i, .depth = 0, .changed = changed};
        struct jframe *old = open_frame(r, r->frame);
        jset(r, "loop", (struct jv){.kind = JV_LOOP, .loop = loop});
        assign(r, n->a, items.item[i]);
        if (jspend(r, n, 1)) jexecute(r, n->body);
        r->frame = old;
        bool ends = r->jump == JUMP_BREAK;
        r->jump = JUMP_NONE;
        if (ends) break;
    }
    r->loops--;
    if (!items.n && !r->code) jexecute(r, n->other);
}

static void run_set(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->b);
    assign(r, n->a, v);
}

static void run_set_block(struct jrun *r, const struct jnode *n)
{
    struct jframe *old = open_frame(r, r->frame), *own = r->frame;
    r->frame = old;
    struct jv v = capture(r, n, own);
    assign(r, n->a, v);
}

static void run_macro(struct jrun *r, const struct jnode *n)
{
    struct jmacro *m = jalloc(r, sizeof *m);
    *m = (struct jmacro){.node = n, .frame = r->frame};
    jset(r, n->name, (struct jv){.kind = JV_MACRO, .macro = m});
}

struct jv jmacro_call(struct jrun *r, const struct jnode *at, const struct jmacro *m, const struct jargs *args)
{
    struct jframe *old = open_frame(r, m->frame), *own = r->frame;
    int64_t used = 0, k = 0;
    for (const struct jnode *p = m->node->items; p && !r->code; p = p->next, k++) {
        struct jv v = jv_undefined(p->name);
        bool given = false;
        for (int64_t i = 0; i < args->n && jspend(r, at, i & 1); i++) {
            bool this_one = args->name[i] ? !strcmp(args->name[i], p->name) : i == k;
            if (this_one && given) jfail(r, at, "%.60s: the argument %.60s is given twice", m->node->name, p->name);
            if (this_one) v = args->value[i];
            given = given || this_one;
        }
        used += given;
        if (!given && p->a) v = jeval(r, p->a);
        jset(r, p->name, v);
    }
    r->frame = old;
    if (used < args->n) jfail(r, at, "the macro %.60s does not take all of these arguments", m->node->name);
    return r->code ? jv_undefined("") : capture(r, m->node, own);
}

static void run_generation(struct jrun *r, const struct jnode *n)
{
    if (r->captured) {
        jfail(r, n,
              "{%% generation %%} within a macro or a {%% set %%} block: where it stands in the text is not known");
        return;
    }
    struct jinja_output *o = r->into;
    GROW(o->answers, o->n_answers, o->answers_room, 1);
    struct jinja_span span = {.from = r->out->text.n};
    int loops = r->loops;
    struct jframe *old = open_frame(r, r->frame);
    r->loops = 0;
    jexecute(r, n->body);
    r->loops = loops;
    r->frame = old;
    span.to = r->out->text.n;
    o->answers[o->n_answers++] = span;
}

/* The values are evaluated outside, as in jinja2. */
static void run_with(struct jrun *r, const struct jnode *n)
{
    struct jframe *old = open_frame(r, r->frame), *own = r->frame;
    for (const struct jnode *pair = n->items; pair && !r->code; pair = pair->next) {
        r->frame = old;
        struct jv v = jeval(r, pair->b);
        r->frame = own;
        assign(r, pair->a, v);
    }
    jexecute(r, n->body);
    r->frame = old;
}

static void run_jump(struct jrun *r, const struct jnode *n)
{
    if (!r->loops) jfail(r, n, "%s outside of a loop", n->kind == JN_BREAK ? "break" : "continue");
    else r->jump = n->kind == JN_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
}

void jexecute(struct jrun *r, const struct jnode *n)
{
    static void (*const how[])(struct jrun *, const struct jnode *) = {
        [JN_TEXT] = run_text,   [JN_OUT] = run_out,
        [JN_IF] = run_if,       [JN_FOR] = run_for,
        [JN_SET] = run_set,     [JN_SET_BLOCK] = run_set_block,
        [JN_MACRO] = run_macro, [JN_GENERATION] = run_generation,
        [JN_BREAK] = run_jump,  [JN_CONTINUE] = run_jump,
        [JN_WITH] = run_with,
    };
    if (n && r->depth >= JINJA_CALLS) {
        jfail(r, n, "more than %d calls within each other", JINJA_CALLS);
        return;
    }
    r->depth++;
    for (; n && !r->code && r->jump == JUMP_NONE; n = n->next)
        if (jspend(r, n, 1)) {
            how[n->kind](r, n);
            (void)jbounded(r, n);
        }
    r->depth--;
}

/* -- what a template sees ------------------------------------------------------------------------------------- */

struct entry {
    char *name;
    struct jv value;
    int64_t all; /* items of a list */
};
struct jinja_scope {
    struct arena *arena;
    struct entry *entries;
    int n, room;
    bool strict;
};

struct jinja_scope *jinja_scope_new(void)
{
    struct jinja_scope *s = xcalloc(1, sizeof *s);
    s->arena = arena_new();
    return s;
}

void jinja_scope_clear(struct jinja_scope *s)
{
    for (int i = 0; i < s->n; i++) xfree(s->entries[i].name);
    s->n = 0;
    arena_reset(s->arena);
}

void jinja_scope_strict(struct jinja_scope *s) { s->strict = true; }

void jinja_scope_free(struct jinja_scope *s)
{
    if (!s) return;
    jinja_scope_clear(s);
    arena_free(s->arena);
    xfree(s->entries);
    xfree(s);
}

static struct entry *entry_of(struct jinja_scope *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->entries[i].name, name)) return &s->entries[i];
    return NULL;
}

static void put_value(struct jinja_scope *s, const char *name, struct jv value)
{
    struct entry *e = entry_of(s, name);
    if (!e) {
        GROW(s->entries, s->n, s->room, 1);
        e = &s->entries[s->n++];
        *e = (struct entry){.name = xstrdup(name)};
    }
    e->value = value;
    e->all = value.kind == JV_LIST ? value.list.n : 0;
}

void jinja_set_text(struct jinja_scope *s, const char *name, const char *text)
{
    put_value(s, name, jv_word(arena_strdup(s->arena, text)));
}

void jinja_set_bool(struct jinja_scope *s, const char *name, bool value) { put_value(s, name, jv_bool(value)); }

void jinja_set_json(struct jinja_scope *s, const char *name, const struct json *v)
{
    put_value(s, name, v ? jv_from_json(s->arena, v) : jv_none());
}

static bool is_plain_word(struct jtext t)
{
    for (size_t i = 0; i < t.n; i++) {
        char c = t.p[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!good) return false;
    }
    return t.n > 0;
}

/* What was thought before an answer has three names; as transformers has it, the first one that is there is
 * reasoning_content, and thinking where that is missing. */
static void name_thoughts(struct arena *a, struct jmap *m)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    struct jwork work = {.most = INT64_MAX};
    const struct jv *found = NULL;
    for (int i = 0; i < 3 && (!found || found->kind == JV_NONE); i++) found = jmap_word(&work, m, names[i]);
    if (!found || found->kind == JV_NONE) return;
    struct jv thought = *found;
    if (!jmap_word(&work, m, "thinking")) jmap_put(&work, a, m, jv_word("thinking"), thought);
    jmap_put(&work, a, m, jv_word("reasoning_content"), thought);
}

void jinja_set_messages(struct jinja_scope *s, const char *name, const struct json *list, const char *trusted)
{
    struct jv all = jv_from_json(s->arena, list);
    for (int64_t i = 0; all.kind == JV_LIST && i < all.list.n; i++) {
        const struct jv *m = &all.list.item[i];
        if (m->kind == JV_MAP) name_thoughts(s->arena, m->map);
        for (int64_t k = 0; m->kind == JV_MAP && k < m->map->n; k++) {
            struct jpair *p = &m->map->pair[k];
            bool this_one = p->key.kind == JV_TEXT && jtext_same(p->key.text, trusted);
            if (this_one && p->value.kind == JV_TEXT && is_plain_word(p->value.text)) p->value.text.data = false;
        }
    }
    put_value(s, name, all);
}

bool jinja_append_last(struct jinja_scope *s, const char *name, const char *member, const char *text)
{
    const struct entry *e = entry_of(s, name);
    if (!e || e->value.kind != JV_LIST || !e->value.list.n) return false;
    const struct jv *last = &e->value.list.item[e->value.list.n - 1];
    for (int64_t k = 0; last->kind == JV_MAP && k < last->map->n; k++) {
        struct jpair *p = &last->map->pair[k];
        if (p->key.kind != JV_TEXT || p->value.kind != JV_TEXT || !jtext_same(p->key.text, member)) continue;
        struct jbuild b = {0};
        jbuild_add(&b, p->value.text);
        jbuild_puts(&b, text);
        p->value.text = jbuild_done(&b, s->arena);
        return true;
    }
    return false;
}

void jinja_set_first(struct jinja_scope *s, const char *name, int64_t n)
{
    struct entry *e = entry_of(s, name);
    if (e && e->value.kind == JV_LIST) e->value.list.n = n < e->all ? n : e->all;
}

/* -- the whole ------------------------------------------------------------------------------------------------ */

static void take_output(struct jinja_output *out, struct jbuild *b)
{
    out->text = b->text;
    out->data = b->who;
    for (size_t i = 0; i < out->data.n; i++) out->data.p[i] = out->data.p[i] != 0;
}

int jinja_render(const struct jinja *t, struct jinja_scope *s, const struct tm *now, struct jinja_output *out,
                 struct err *e)
{
    struct jframe outer = {0};
    struct jbuild b = {0};
    struct jrun r = {.t = t,
                     .arena = arena_new(),
                     .frame = &outer,
                     .out = &b,
                     .into = out,
                     .now = now,
                     .e = e,
                     .work.most = JINJA_STEPS};
    r.strict = s->strict;
    *out = (struct jinja_output){0};
    for (int i = 0; i < s->n; i++) jset(&r, s->entries[i].name, s->entries[i].value);
    open_frame(&r, &outer);
    jexecute(&r, t->body);
    take_output(out, &b);
    arena_free(r.arena);
    if (r.code) jinja_output_fini(out);
    return r.code;
}

void jinja_output_fini(struct jinja_output *out)
{
    str_free(&out->text);
    str_free(&out->data);
    xfree(out->answers);
    *out = (struct jinja_output){0};
}
