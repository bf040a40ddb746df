/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: from the text of an expression to a tree, from the tree to a graph, from the classes to one table of
 * masks.
 *
 * The reader takes what it is sure of. Anything else (look-behind, anchors, lazy repetition, repeated groups,
 * references, options but (?i:...) around ASCII) ends it with LEAVE, and the expression goes to Oniguruma.
 *
 * Under (?i:...) Oniguruma folds case by Unicode: s matches U+017F and k U+212A too, and some pairs of letters (ss, st,
 * ff, fi, fl) match one character; with such a pair the expression is left to it.
 */
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"
#include "token/charset.h"
#include "token/pattern_impl.h"

enum { LEAVE = 1, TREES = 2048, DEPTH = 32, NO_LIMIT = INT32_MAX };

enum tree_kind { TREE_EMPTY, TREE_CHAR, TREE_LOOP, TREE_EITHER, TREE_BOTH, TREE_LOOK };
struct tree {
    enum tree_kind kind;
    int a, b; /* EITHER: a, else b; BOTH: a, then b; LOOK: a */
    int set, min, max;
    bool flag;
};

struct reader {
    const char *p;
    size_t n, at;
    struct tree trees[TREES];
    int n_trees, depth;
    struct ranges sets[PATTERN_SETS];
    int n_sets;
    bool fold;      /* inside (?i:...) */
    char last_fold; /* the letter before, inside it */
    struct err *e;
};

static int tree(struct reader *r, struct tree t, int *out)
{
    if (r->n_trees == TREES) return LEAVE;
    r->trees[ *out = r->n_trees++] = t;
    return OK;
}

/* The number of a set, which is taken over; equal sets have one number. */
static int set_number(struct reader *r, struct ranges *s, int *out)
{
    for (*out = 0; *out < r->n_sets; ++*out) {
        const struct ranges *have = &r->sets[*out];
        if (have->n == s->n && (s->n == 0 || !memcmp(have->r, s->r, (size_t)s->n * sizeof *s->r))) {
            ranges_free(s);
            return OK;
        }
    }
    if (r->n_sets == PATTERN_SETS) {
        ranges_free(s);
        return LEAVE;
    }
    r->sets[r->n_sets++] = *s;
    *s = (struct ranges){0};
    return OK;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

static bool is_at(const struct reader *r, const char *text)
{
    size_t n = strlen(text);
    return r->n - r->at >= n && !memcmp(r->p + r->at, text, n);
}

/* One letter under (?i:...): both cases and what folds to them. */
static int folded(struct reader *r, uint32_t code, struct ranges *s)
{
    static const char pairs[][3] = {"ss", "st", "ff", "fi", "fl"};
    if (code >= 0x80) return LEAVE;
    bool letter = (code | 32) >= 'a' && (code | 32) <= 'z';
    char c = letter ? (char)(code | 32) : 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (letter && r->last_fold == pairs[i][0] && c == pairs[i][1]) return LEAVE;
    r->last_fold = c;
    if (letter) ranges_add(s, code ^ 32, code ^ 32);
    if (c == 's') ranges_add(s, 0x17F, 0x17F);
    if (c == 'k') ranges_add(s, 0x212A, 0x212A);
    return OK;
}

static int read_set(struct reader *r, struct ranges *s)
{
    struct charset c;
    uint32_t code;
    int rc = charset_read(&c, r->p, r->n, &r->at, r->e);
    if (rc < 0) return rc;
    if (rc == OK) {
        if (r->fold) {
            charset_free(&c);
            return LEAVE;
        }
        *s = c.set;
        if (c.negated) ranges_invert(s);
        return OK;
    }
    if (is_at(r, ".")) {
        r->at++;
        ranges_add(s, '\n', '\n');
        ranges_invert(s);
        return r->fold ? LEAVE : OK;
    }
    if (charset_char(&code, r->p, r->n, &r->at, false)) return LEAVE;
    ranges_add(s, code, code);
    rc = r->fold ? folded(r, code, s) : OK;
    ranges_settle(s);
    return rc;
}

static int number(struct reader *r, int *out)
{
    size_t from = r->at;
    *out = 0;
    while (r->at < r->n && r->p[r->at] >= '0' && r->p[r->at] <= '9') {
        *out = *out * 10 + (r->p[r->at++] - '0');
        if (*out > 10000) return LEAVE;
    }
    return r->at > from ? OK : LEAVE;
}

/* ? * + {n} {n,} {n,m}, and what makes them possessive; *any: there was one. */
static int repetition(struct reader *r, int *min, int *max, bool *possessive, bool *any)
{
    char c = r->at < r->n ? r->p[r->at] : 0;
    *min = *max = 1;
    *possessive = false;
    *any = c == '?' || c == '*' || c == '+' || c == '{';
    if (!*any) return OK;
    r->at++;
    if (c == '{') {
        if (number(r, min)) return LEAVE;
        *max = *min;
        if (is_at(r, ",")) {
            r->at++;
            *max = NO_LIMIT;
            if (!is_at(r, "}") && number(r, max)) return LEAVE;
        }
        if (!is_at(r, "}") || *max < *min || *max == 0) return LEAVE;
        r->at++;
        if (is_at(r, "+") && *min == 1) { /* not possessive here, as for Perl: the interval as often as can be */
            r->at++;
            *max = NO_LIMIT;
        }
    } else {
        *min = c == '+';
        *max = c == '?' ? 1 : NO_LIMIT;
        if (is_at(r, "+")) {
            r->at++;
            *possessive = true;
        }
    }
    return is_at(r, "?") || is_at(r, "*") || is_at(r, "+") || is_at(r, "{") ? LEAVE : OK;
}

static int read_choice(struct reader *r, int *out);

static int read_group(struct reader *r, int *out)
{
    static const struct {
        const char *head;
        bool look, negated, fold;
    } heads[] = {{"(?:", 0, 0, 0}, {"(?=", 1, 0, 0}, {"(?!", 1, 1, 0}, {"(?i:", 0, 0, 1}, {"(", 0, 0, 0}};
    size_t k = 0;
    while (!is_at(r, heads[k].head)) k++;
    r->at += strlen(heads[k].head);
    if (k == 4 && (is_at(r, "?") || is_at(r, "*"))) return LEAVE;
    bool fold = r->fold;
    if (++r->depth > DEPTH) return LEAVE;
    r->fold = fold || heads[k].fold;
    r->last_fold = 0;
    int rc = read_choice(r, out);
    r->fold = fold;
    r->last_fold = 0;
    r->depth--;
    if (rc) return rc;
    if (!is_at(r, ")")) return LEAVE;
    r->at++;
    if (heads[k].look) rc = tree(r, (struct tree){.kind = TREE_LOOK, .a = *out, .flag = heads[k].negated}, out);
    int min, max, empty;
    bool possessive, any;
    if (!rc) rc = repetition(r, &min, &max, &possessive, &any);
    if (rc || !any) return rc;
    if (heads[k].look || min != 0 || max != 1 || possessive) return LEAVE;
    rc = tree(r, (struct tree){.kind = TREE_EMPTY}, &empty);
    return rc ? rc : tree(r, (struct tree){.kind = TREE_EITHER, .a = *out, .b = empty}, out);
}

static int read_one(struct reader *r, int *out)
{
    if (is_at(r, "(")) return read_group(r, out);
    struct ranges s = {0};
    struct tree t = {.kind = TREE_CHAR};
    bool any;
    int rc = read_set(r, &s);
    if (!rc) rc = set_number(r, &s, &t.set);
    ranges_free(&s);
    if (!rc) rc = repetition(r, &t.min, &t.max, &t.flag, &any);
    if (rc) return rc;
    if (any) {
        t.kind = TREE_LOOP;
        r->last_fold = 0;
        if (r->fold) return LEAVE;
    }
    return tree(r, t, out);
}

static int read_sequence(struct reader *r, int *out)
{
    r->last_fold = 0;
    int rc = tree(r, (struct tree){.kind = TREE_EMPTY}, out);
    while (!rc && r->at < r->n && !is_at(r, "|") && !is_at(r, ")")) {
        int one;
        rc = read_one(r, &one);
        if (!rc) rc = tree(r, (struct tree){.kind = TREE_BOTH, .a = *out, .b = one}, out);
    }
    return rc;
}

static int read_choice(struct reader *r, int *out)
{
    int rc = read_sequence(r, out);
    if (rc || !is_at(r, "|")) return rc;
    r->at++;
    int rest;
    if (++r->depth > 4 * DEPTH) return LEAVE;
    rc = read_choice(r, &rest);
    r->depth--;
    return rc ? rc : tree(r, (struct tree){.kind = TREE_EITHER, .a = *out, .b = rest}, out);
}

/* -- making the graph --------------------------------------------------------------------------------------- */

/* What a match from a step may begin with, once what follows it is known. */
static void find_first(const struct reader *r, struct pattern *x, struct pattern_step *s)
{
    if (s->kind == STEP_ACCEPT) {
        s->first[0] = s->first[1] = UINT64_MAX;
        s->beyond_ascii = true;
        return;
    }
    if (s->kind == STEP_CHAR || s->kind == STEP_LOOP) {
        const struct ranges *set = &r->sets[s->set];
        for (uint32_t c = 0; c < 128; c++)
            if (ranges_has(set, c)) s->first[c >> 6] |= (uint64_t)1 << (c & 63);
        s->beyond_ascii = set->n && set->r[set->n - 1].hi >= 0x80;
        if (s->kind == STEP_CHAR || s->min > 0) return;
    }
    const struct pattern_step *also[] = {&x->steps[s->next], s->kind == STEP_FORK ? &x->steps[s->other] : NULL};
    for (int i = 0; i < 2 && also[i]; i++) {
        s->first[0] |= also[i]->first[0];
        s->first[1] |= also[i]->first[1];
        s->beyond_ascii = s->beyond_ascii || also[i]->beyond_ascii;
    }
}

/* Nothing that the loop takes could begin what follows, so giving back characters never helps. */
static bool never_backs(const struct reader *r, const struct pattern *x, const struct pattern_step *loop)
{
    const struct pattern_step *after = &x->steps[loop->next];
    const struct ranges *set = &r->sets[loop->set];
    if (after->beyond_ascii && set->n && set->r[set->n - 1].hi >= 0x80) return false;
    for (uint32_t c = 0; c < 128; c++)
        if (after->first[c >> 6] >> (c & 63) & 1 && ranges_has(set, c)) return false;
    return true;
}

static int add_step(const struct reader *r, struct pattern *x, struct pattern_step s, int *out)
{
    if (x->n_steps == PATTERN_STEPS) return LEAVE;
    if (s.kind == STEP_LOOP && !s.flag) s.flag = x->steps[s.next].kind == STEP_ACCEPT || never_backs(r, x, &s);
    find_first(r, x, &s);
    x->steps[ *out = x->n_steps++] = s;
    return OK;
}

/* The steps of tree t, after which step `next` comes; *out: the first of them. */
static int emit(const struct reader *r, struct pattern *x, int t, int next, int *out)
{
    const struct tree *n = &r->trees[t];
    int a, b, rc;
    switch (n->kind) {
    case TREE_EMPTY: *out = next; return OK;
    case TREE_CHAR: return add_step(r, x, (struct pattern_step){.kind = STEP_CHAR, .next = next, .set = n->set}, out);
    case TREE_LOOP:
        return add_step(r, x,
                        (struct pattern_step){.kind = STEP_LOOP,
                                              .next = next,
                                              .set = n->set,
                                              .min = n->min,
                                              .max = n->max,
                                              .flag = n->flag},
                        out);
    case TREE_BOTH: rc = emit(r, x, n->b, next, &b); return rc ? rc : emit(r, x, n->a, b, out);
    case TREE_EITHER:
        rc = emit(r, x, n->a, next, &a);
        if (!rc) rc = emit(r, x, n->b, next, &b);
        return rc ? rc : add_step(r, x, (struct pattern_step){.kind = STEP_FORK, .other = a, .next = b}, out);
    case TREE_LOOK:
        rc = add_step(r, x, (struct pattern_step){.kind = STEP_ACCEPT}, &a);
        if (!rc) rc = emit(r, x, n->a, a, &a);
        return rc ? rc
                  : add_step(r, x, (struct pattern_step){.kind = STEP_LOOK, .other = a, .next = next, .flag = n->flag},
                             out);
    }
    return LEAVE;
}

/* -- masks -------------------------------------------------------------------------------------------------- */

static void add_page(struct pattern *x, int number, const uint32_t *masks)
{
    int k = x->n_pages - 1;
    while (k >= 0 && memcmp(x->pages[k], masks, sizeof *x->pages)) k--;
    if (k < 0) {
        GROW(x->pages, x->n_pages, x->room_pages, 1);
        k = x->n_pages++;
        memcpy(x->pages[k], masks, sizeof *x->pages);
    }
    x->page_of[number] = (uint16_t)k;
}

static void find_entries(struct pattern *x)
{
    for (int c = 0; c < 128; c++) {
        int i = x->start;
        while (x->steps[i].kind == STEP_FORK && !(x->steps[x->steps[i].other].first[c >> 6] >> (c & 63) & 1))
            i = x->steps[i].next;
        x->enter[c] = (int16_t)i;
    }
}

static void make_masks(const struct reader *r, struct pattern *x)
{
    int at[PATTERN_SETS] = {0}; /* the range of each set that the page has come to */
    int plain = -1;             /* the last page whose characters are all in the same sets, which are */
    uint32_t plain_sets = 0;
    for (int page = 0; page < N_PAGES; page++) {
        uint32_t masks[PAGE] = {0}, lo = (uint32_t)page * PAGE, hi = lo + PAGE - 1, whole = 0;
        bool parts = false;
        for (int k = 0; k < r->n_sets; k++) {
            const struct ranges *s = &r->sets[k];
            while (at[k] < s->n && s->r[at[k]].hi < lo) at[k]++;
            bool begun = at[k] < s->n && s->r[at[k]].lo <= hi,
                 all = begun && s->r[at[k]].lo <= lo && s->r[at[k]].hi >= hi;
            whole |= (uint32_t)all << k;
            parts = parts || (begun && !all);
        }
        if (!parts && plain >= 0 && plain_sets == whole) {
            x->page_of[page] = x->page_of[plain];
            continue;
        }
        if (!parts) {
            plain = page;
            plain_sets = whole;
        }
        for (int k = 0; k < r->n_sets; k++) {
            const struct ranges *s = &r->sets[k];
            for (int i = at[k]; i < s->n && s->r[i].lo <= hi; i++) {
                uint32_t end = s->r[i].hi < hi ? s->r[i].hi : hi;
                for (uint32_t c = s->r[i].lo > lo ? s->r[i].lo : lo; c <= end; c++) masks[c - lo] |= (uint32_t)1 << k;
            }
        }
        add_page(x, page, masks);
    }
}

int pattern_new(struct pattern **out, const char *text, size_t n, struct err *e)
{
    struct reader *r = xcalloc(1, sizeof *r);
    struct pattern *x = xcalloc(1, sizeof *x);
    r->p = text;
    r->n = n;
    r->e = e;
    int root = 0, accept = 0, rc = read_choice(r, &root);
    if (!rc && r->at < n) rc = LEAVE; /* a ) too many */
    if (!rc) rc = add_step(r, x, (struct pattern_step){.kind = STEP_ACCEPT}, &accept);
    if (!rc) rc = emit(r, x, root, accept, &x->start);
    if (!rc) find_entries(x);
    if (!rc) make_masks(r, x);
    if (!rc) pattern_find_seams(x);
    for (int k = 0; k < r->n_sets; k++) ranges_free(&r->sets[k]);
    xfree(r);
    if (rc) {
        pattern_free(x);
        x = NULL;
    }
    *out = x;
    return rc < 0 ? rc : OK;
}

void pattern_free(struct pattern *x)
{
    if (!x) return;
    xfree(x->pages);
    xfree(x);
}
