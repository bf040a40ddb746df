/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: stages, each a way to find matches, a rule for what to do with them, and perhaps a change of the piece.
 *
 * The first stage works on text as it comes and says how far it is certain; later ones cut pieces that are complete. A
 * stage that needs the whole text (Oniguruma's) waits until its end is there, SPLIT_TEXT_MAX at most. What has been
 * found and not handed out is found again when more text is there: a piece is always decided from its own beginning, so
 * where text was parted leaves no trace.
 *
 * Cost: one call per piece, about 0.05 microseconds where pattern.h matches, ten times that by Oniguruma.
 */
#include "token/split.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "text/script_runs.h"
#include "text/utf8.h"
#include "token/token_bounds.h"
#include "token/byte_level.h"
#include "token/char_bpe.h"
#include "token/matcher.h"

const char *const SPLIT_GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const SPLIT_LLAMA3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum { MAX_STAGES = 16, LOW = 0x3000 };

/* A set of characters, the frequent ones as bits. */
struct char_set {
    uint64_t low[LOW / 64];
    struct ranges all;
};

enum change { CHANGE_NONE, CHANGE_METASPACE, CHANGE_PREFIX, CHANGE_ALPHABET };

struct stage {
    /* Where matches are: one of these, or none of them (no match anywhere). */
    struct matcher *matcher;
    struct char_set *set;
    const struct joins *joins; /* a cut before what it matches, and no match */
    int64_t fixed;             /* cuts behind so many characters; 0: it does not */
    bool scripts;              /* cuts where the script changes */
    enum split_behavior behavior;
    bool inverted;
    enum change change;
    unsigned char symbol[4]; /* METASPACE: UTF-8 */
    int symbol_n;
    enum split_prepend prepend;
};

struct split {
    struct stage stages[MAX_STAGES];
    int n;
};

struct split_work {
    struct matcher_work *matching;
    struct str changed[MAX_STAGES]; /* a piece as the stage of this number changed it */
    bool begins;                    /* the next piece of stage 0 begins a text */
    int64_t origin;                 /* of what stage 0 gets next: struct place */
};

/* -- making ------------------------------------------------------------------------------------------------- */

struct split *split_new(void) { return xcalloc(1, sizeof(struct split)); }

void split_free(struct split *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        matcher_free(s->stages[i].matcher);
        if (s->stages[i].set) ranges_free(&s->stages[i].set->all);
        xfree(s->stages[i].set);
    }
    xfree(s);
}

int split_n_stages(const struct split *s) { return s->n; }

/* A stage in which nothing begins there may have the cut inside what it leaves over; a later one cuts it. */
bool split_parts_before(const struct split *s, int k, uint32_t before)
{
    bool any = false;
    for (int i = 0; i < s->n; i++) {
        const struct stage *x = &s->stages[i];
        bool begins, isolated = x->matcher && x->behavior == SPLIT_ISOLATED && !x->change;
        if (!isolated || !matcher_parts_before(x->matcher, k, before, &begins)) return false;
        any = any || begins;
    }
    return any;
}

bool split_needs_whole_text(const struct split *s)
{
    return s->n > 0 && s->stages[0].matcher && matcher_needs_whole_text(s->stages[0].matcher);
}

bool split_keeps_text(const struct split *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->stages[i].change || s->stages[i].scripts || s->stages[i].behavior == SPLIT_REMOVED) return false;
    return true;
}

static int add_stage(struct split *s, struct stage x, const char *what, struct err *e)
{
    if (s->n == MAX_STAGES) {
        matcher_free(x.matcher);
        return err_set(e, ERR_REQUEST, "%s: more than %d splits in sequence", what, MAX_STAGES);
    }
    int changes = x.change != 0;
    for (int i = 0; i < s->n; i++) changes += s->stages[i].change != 0;
    s->stages[s->n++] = x;
    if (changes <= SPLIT_CHANGES_MAX) return OK;
    return err_set(e, ERR_REQUEST, "%s: pre_tokenizer: more than %d steps that change the text", what,
                   SPLIT_CHANGES_MAX);
}

static int add_matcher(struct split *s, const char *pattern, size_t n, bool general, enum split_behavior b,
                       bool inverted, const char *what, struct err *e)
{
    struct stage x = {.behavior = b, .inverted = inverted};
    int code = matcher_new(&x.matcher, pattern, n, general, what, e);
    return code ? code : add_stage(s, x, what, e);
}

int split_add(struct split *s, const char *pattern, size_t n, const char *what, struct err *e)
{
    return add_matcher(s, pattern, n, false, SPLIT_ISOLATED, false, what, e);
}

int split_add_general(struct split *s, const char *pattern, size_t n, const char *what, struct err *e)
{
    return add_matcher(s, pattern, n, true, SPLIT_ISOLATED, false, what, e);
}

int split_add_pattern(struct split *s, const char *pattern, size_t n, enum split_behavior b, bool inverted,
                      const char *what, struct err *e)
{
    return add_matcher(s, pattern, n, false, b, inverted, what, e);
}

static struct char_set *char_set_new(const struct ranges *from)
{
    struct char_set *set = xcalloc(1, sizeof *set);
    for (int i = 0; i < from->n; i++) {
        ranges_add(&set->all, from->r[i].lo, from->r[i].hi);
        for (uint32_t c = from->r[i].lo; c <= from->r[i].hi && c < LOW; c++) set->low[c / 64] |= (uint64_t)1 << c % 64;
    }
    ranges_settle(&set->all);
    return set;
}

static bool char_set_has(const struct char_set *set, uint32_t c)
{
    return c < LOW ? set->low[c / 64] >> c % 64 & 1 : ranges_has(&set->all, c);
}

int split_add_set(struct split *s, const struct ranges *set, enum split_behavior b, const char *what, struct err *e)
{
    if (s->n == MAX_STAGES) return add_stage(s, (struct stage){.behavior = b}, what, e);
    return add_stage(s, (struct stage){.set = char_set_new(set), .behavior = b}, what, e);
}

int split_add_metaspace(struct split *s, uint32_t symbol, enum split_prepend prepend, bool cuts, const char *what,
                        struct err *e)
{
    struct stage x = {.behavior = SPLIT_WITH_NEXT, .change = CHANGE_METASPACE, .prepend = prepend};
    x.symbol_n = utf8_put(x.symbol, symbol);
    if (s->n == MAX_STAGES) return add_stage(s, x, what, e);
    if (cuts) {
        struct ranges both = {0};
        ranges_add(&both, ' ', ' ');
        ranges_add(&both, symbol, symbol);
        ranges_settle(&both);
        x.set = char_set_new(&both);
        ranges_free(&both);
    }
    return add_stage(s, x, what, e);
}

int split_add_prefix(struct split *s, const char *what, struct err *e)
{
    CHECK(s->n > 0, "a prefix as the first stage");
    return add_stage(s, (struct stage){.change = CHANGE_PREFIX}, what, e);
}

int split_add_alphabet(struct split *s, const char *what, struct err *e)
{
    return add_stage(s, (struct stage){.change = CHANGE_ALPHABET}, what, e);
}

int split_add_fixed(struct split *s, int64_t chars, const char *what, struct err *e)
{
    CHECK(chars >= 1 && chars <= SPLIT_FIXED_MAX, "pieces of %lld characters", (long long)chars);
    return add_stage(s, (struct stage){.fixed = chars}, what, e);
}

int split_add_scripts(struct split *s, const char *what, struct err *e)
{
    return add_stage(s, (struct stage){.scripts = true}, what, e);
}

int split_add_joins(struct split *s, const struct joins *j, const char *what, struct err *e)
{
    struct stage *last = s->n ? &s->stages[s->n - 1] : NULL;
    if (last && last->change == CHANGE_METASPACE && !last->set) {
        last->joins = j;
        return OK;
    }
    return add_stage(s, (struct stage){.joins = j}, what, e);
}

struct split_work *split_work_new(const struct split *s)
{
    struct split_work *w = xcalloc(1, sizeof *w);
    for (int i = 0; i < s->n && !w->matching; i++)
        if (s->stages[i].matcher) w->matching = matcher_work_new();
    return w;
}

void split_work_free(struct split_work *w)
{
    if (!w) return;
    for (int i = 0; i < MAX_STAGES; i++) str_free(&w->changed[i]);
    matcher_work_free(w->matching);
    xfree(w);
}

void split_begin(struct split_work *w) { w->begins = true; }

void split_origin(struct split_work *w, int64_t chars) { w->origin = chars; }

void split_goes_on(struct split_work *w) { w->begins = false; }

/* -- handing on --------------------------------------------------------------------------------------------- */

/* One run over a text: what every function below needs. */
struct run {
    const struct split *s;
    struct split_work *w;
    split_piece_fn *fn;
    void *arg;
    struct err *e;
};

/* What is known of the text that a stage gets: it begins a piece that begins the text; so many of its characters come
 * from where the document begins: usually the first, more where a normalizer or stage made several of it. */
struct place {
    int64_t origin;
    bool begins;
};

static int64_t origin_behind(int64_t origin, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n && origin; i++) origin -= (p[i] & 0xC0) != 0x80;
    return origin;
}

/* Of the piece that begins at p[from]. */
static struct place place_at(struct place at, const unsigned char *p, size_t from)
{
    return from ? (struct place){.origin = origin_behind(at.origin, p, from)} : at;
}

static int run_stage(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                     size_t *used);

static bool begins_with(const unsigned char *p, size_t n, const unsigned char *what, int what_n)
{
    return n >= (size_t)what_n && !memcmp(p, what, (size_t)what_n);
}

static void metaspace(struct str *out, const struct stage *x, const unsigned char *p, size_t n, struct place *at)
{
    bool has = n && (p[0] == ' ' || begins_with(p, n, x->symbol, x->symbol_n));
    bool wanted = (x->prepend == PREPEND_ALWAYS && at->begins) || (x->prepend == PREPEND_FIRST && at->origin);
    if (wanted && !has) {
        str_add(out, x->symbol, (size_t)x->symbol_n);
        at->origin += at->origin > 0;
    }
    while (n) {
        const unsigned char *space = memchr(p, ' ', n);
        size_t plain = space ? (size_t)(space - p) : n;
        str_add(out, p, plain);
        if (space) str_add(out, x->symbol, (size_t)x->symbol_n);
        p += plain + (space ? 1 : 0);
        n -= plain + (space ? 1 : 0);
    }
}

/* How many bytes that many characters are. */
static int64_t bytes_of(int64_t chars, const unsigned char *p, size_t n)
{
    size_t at = 0;
    while (at < n && (chars -= (p[at] & 0xC0) != 0x80) >= 0) at++;
    return (int64_t)at;
}

/* A piece of `stage` goes to the next one, whole, as the stage changes it; after the last, to the caller. */
static int hand_on(const struct run *r, int stage, const unsigned char *p, size_t n, struct place at)
{
    size_t used;
    if (n == 0) return OK;
    if (stage >= 0 && r->s->stages[stage].change) {
        const struct stage *x = &r->s->stages[stage];
        struct str *out = &r->w->changed[stage];
        str_clear(out);
        if (x->change == CHANGE_METASPACE) metaspace(out, x, p, n, &at);
        if (x->change == CHANGE_ALPHABET) {
            byte_level_write(out, p, n);
            if (at.origin) at.origin = bytes_of(at.origin, p, n);
        }
        if (x->change == CHANGE_PREFIX) {
            if (p[0] != ' ') str_putc(out, ' ');
            at.origin += at.origin > 0 && p[0] != ' ';
            str_add(out, p, n);
        }
        p = (const unsigned char *)out->p;
        n = out->n;
    }
    if (stage + 1 < r->s->n) {
        at.begins = true; /* every stage takes what it gets for a text */
        return run_stage(r, stage + 1, p, n, true, at, &used);
    }
    r->fn(r->arg, p, n);
    return OK;
}

/* The window that a piece starting at p[at] is decided in: its end, and whether text beyond cannot matter. */
static size_t window(const unsigned char *p, size_t n, size_t at, bool *final)
{
    if (n - at < SPLIT_PIECE_MAX) return n;
    *final = true;
    return n - at == SPLIT_PIECE_MAX ? n : utf8_cut(p, at + SPLIT_PIECE_MAX);
}

/* -- a regular expression, every match and what is between them a piece: the usual case ------------------------- */

static int run_isolated(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                        size_t *used)
{
    const struct stage *x = &r->s->stages[stage];
    size_t done = 0;   /* everything before is in pieces that were handed on */
    size_t search = 0; /* where the next search starts: >= done, beyond it only after an empty match */
    bool whole = matcher_needs_whole_text(x->matcher);
    while (done < n) {
        bool last = final;
        size_t end = whole ? n : window(p, n, done, &last);
        struct found f = {.match = false};
        int code = search < end ? matcher_find(x->matcher, r->w->matching, p, end, search, last, &f, r->e) : OK;
        if (code) return code;
        struct place rest = place_at(at, p, done);
        if (f.match && f.from == f.to &&
            f.from < end) { /* an empty match is a cut; the next search is one character on */
            int len = utf8_char(p + f.from, end - f.from);
            code = hand_on(r, stage, p + done, f.from - done, rest);
            if (code) return code;
            *used = done = f.from;
            search = f.from + (size_t)(len > 0 ? len : 1);
            continue;
        }
        if (f.match && f.from < f.to) {
            code = hand_on(r, stage, p + done, f.from - done, rest);
            rest = place_at(at, p, f.from);
            if (!code) code = hand_on(r, stage, p + f.from, f.to - f.from, rest);
            done = f.to;
        } else if (last) {
            code = hand_on(r, stage, p + done, end - done, rest);
            done = end;
        } else {
            return OK; /* undecided, or no match yet: both wait for more text */
        }
        if (code) return code;
        search = done;
        *used = done;
    }
    return OK;
}

/* -- any other stage: matches and gaps as events, folded into pieces ------------------------------------------- */

struct event {
    size_t from, to;
    bool match;
};
struct events {
    const struct stage *x;
    struct found ahead; /* the next match, when a gap before it was handed out first */
    bool has_ahead;
    size_t search; /* where the next search of a matcher begins */
};
enum verdict { EVENT, NO_MORE, UNDECIDED };

/* The next character of the set at p[at..end): its place, or end. */
static size_t next_in_set(const struct char_set *set, const unsigned char *p, size_t at, size_t end, int *len)
{
    for (; at < end; at += (size_t)*len) {
        *len = 1;
        if (p[at] < 0x80) {
            if (set->low[p[at] / 64] >> p[at] % 64 & 1) break;
        } else if (char_set_has(set, utf8_code(p + at, len))) {
            break;
        }
    }
    return at;
}

/* The next match in p[at..end). */
static int find_match(const struct run *r, struct events *v, const unsigned char *p, size_t at, size_t end, bool last,
                      struct found *f)
{
    int len = 0;
    *f = (struct found){0};
    if (v->x->matcher) {
        size_t search = at > v->search ? at : v->search;
        return search < end ? matcher_find(v->x->matcher, r->w->matching, p, end, search, last, f, r->e) : OK;
    }
    f->from = v->x->set ? next_in_set(v->x->set, p, at, end, &len) : end;
    f->match = f->from < end;
    f->to = f->from + (size_t)len;
    return OK;
}

/* What begins at p[at], at < end: a gap or a match, inverted or not. */
static int next_event(const struct run *r, struct events *v, const unsigned char *p, size_t at, size_t end, bool last,
                      struct event *ev, enum verdict *verdict)
{
    struct found f = v->ahead;
    if (!v->has_ahead) {
        int code = find_match(r, v, p, at, end, last, &f);
        if (code) return code;
    }
    v->has_ahead = false;
    *verdict = EVENT;
    if (!f.match || f.from >= end) {
        *ev = (struct event){.from = at, .to = end, .match = v->x->inverted};
        if (!last) *verdict = UNDECIDED;
        return OK;
    }
    if (f.from > at) {
        v->ahead = f;
        v->has_ahead = true;
        *ev = (struct event){.from = at, .to = f.from, .match = v->x->inverted};
        return OK;
    }
    *ev = (struct event){.from = f.from, .to = f.to, .match = !v->x->inverted};
    int len = 1;
    if (f.from == f.to) (void)utf8_code(p + f.from, &len);
    v->search = f.to + (f.from == f.to ? (size_t)len : 0);
    return OK;
}

/* Whether the event goes on with the piece that is open. */
static bool extends(enum split_behavior b, const struct event *open, bool open_was_match, const struct event *ev)
{
    if (b == SPLIT_CONTIGUOUS) return ev->match == open_was_match;
    if (b == SPLIT_WITH_PREVIOUS) return ev->match && !open_was_match;
    if (b == SPLIT_WITH_NEXT) return !ev->match && open_was_match;
    (void)open;
    return false;
}

static int hand_on_event(const struct run *r, int stage, const unsigned char *p, const struct event *ev,
                         struct place at)
{
    const struct stage *x = &r->s->stages[stage];
    if (x->behavior == SPLIT_REMOVED && ev->match) return OK;
    return hand_on(r, stage, p + ev->from, ev->to - ev->from, place_at(at, p, ev->from));
}

static int run_folded(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place place,
                      size_t *used)
{
    const struct stage *x = &r->s->stages[stage];
    struct events v = {.x = x};
    struct event open = {0}, ev;
    bool is_open = false, open_was_match = false, whole = x->matcher && matcher_needs_whole_text(x->matcher);
    size_t at = 0;
    while (at < n) {
        bool last = final;
        size_t from = is_open ? open.from : at, end = whole ? n : window(p, n, from, &last);
        enum verdict verdict = NO_MORE;
        int code = at < end ? next_event(r, &v, p, at, end, last, &ev, &verdict) : OK;
        if (code) return code;
        if (verdict == UNDECIDED) break;
        if (verdict == EVENT && is_open && extends(x->behavior, &open, open_was_match, &ev)) {
            open.to = at = ev.to;
            open_was_match = ev.match;
            continue;
        }
        if (is_open && (code = hand_on_event(r, stage, p, &open, place))) return code;
        if (is_open) *used = open.to;
        is_open = verdict == EVENT;
        if (!is_open) { /* the window is full: what follows is a text of its own */
            v.has_ahead = false;
            continue;
        }
        open = ev;
        open_was_match = ev.match;
        at = ev.to;
    }
    if (!is_open || !final || at < n) return OK;
    int code = hand_on_event(r, stage, p, &open, place);
    if (!code) *used = open.to;
    return code;
}

/* -- cuts where no merge reaches across -------------------------------------------------------------------------- */

static int run_joins(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                     size_t *used)
{
    const struct stage *x = &r->s->stages[stage];
    bool spaces = x->change == CHANGE_METASPACE;
    int len;
    uint32_t symbol = spaces ? utf8_code(x->symbol, &len) : 0, before = 0;
    size_t done = 0;
    for (size_t i = 0; i <= n;) {
        bool cut = i == n ? final : i - done >= SPLIT_PIECE_MAX;
        uint32_t code = 0;
        len = 1;
        if (i < n) code = p[i] < 0x80 ? p[i] : utf8_code(p + i, &len);
        if (spaces && code == ' ') code = symbol;
        if (!cut && i < n && i > done) cut = joins_never(x->joins, before, code);
        if (cut && i > done) {
            int rc = hand_on(r, stage, p + done, i - done, place_at(at, p, done));
            if (rc) return rc;
            *used = done = i;
        }
        if (i == n) break;
        before = code;
        i += (size_t)len;
    }
    return OK;
}

/* -- so many characters ------------------------------------------------------------------------------------------ */

static int run_fixed(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                     size_t *used)
{
    int64_t chars = 0;
    int len;
    for (size_t i = 0, done = 0; i < n;) {
        (void)utf8_code(p + i, &len);
        i += (size_t)len;
        if (++chars < r->s->stages[stage].fixed && !(final && i >= n)) continue;
        int code = hand_on(r, stage, p + done, i - done, place_at(at, p, done));
        if (code) return code;
        *used = done = i;
        chars = 0;
    }
    return OK;
}

/* -- scripts ----------------------------------------------------------------------------------------------------- */

static int run_scripts(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                       size_t *used)
{
    size_t from = 0, i = 0; /* of the piece that is open */
    bool open = !at.begins;
    int before = 0, len = 0, code = OK;
    for (; i < n && !code; i += (size_t)len) {
        int script = script_of(utf8_code(p + i, &len));
        bool full = open && i - from >= SPLIT_PIECE_MAX;
        if ((full || (script && script != before)) && open && i > from) {
            code = hand_on(r, stage, p + from, i - from, place_at(at, p, from));
            *used = i;
        }
        if (full || (script && script != before)) from = i;
        open = open || script;
        before = script ? script : full ? 0 : before;
    }
    if (code || !final) return code;
    if (open) code = hand_on(r, stage, p + from, n - from, place_at(at, p, from));
    *used = n;
    return code;
}

/* -- running ------------------------------------------------------------------------------------------------- */

static int run_uncut(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                     size_t *used)
{
    size_t done = 0;
    while (done < n) {
        bool last = final;
        size_t end = stage > 0 ? n : window(p, n, done, &last);
        if (!last) break;
        int code = hand_on(r, stage, p + done, end - done, place_at(at, p, done));
        if (code) return code;
        done = end;
    }
    *used = done;
    return OK;
}

static int run_stage(const struct run *r, int stage, const unsigned char *p, size_t n, bool final, struct place at,
                     size_t *used)
{
    const struct stage *x = &r->s->stages[stage];
    *used = 0;
    if (x->matcher && matcher_needs_whole_text(x->matcher) && !final) return OK;
    if (x->matcher && x->behavior == SPLIT_ISOLATED) return run_isolated(r, stage, p, n, final, at, used);
    if (x->scripts) return run_scripts(r, stage, p, n, final, at, used);
    if (x->fixed) return run_fixed(r, stage, p, n, final, at, used);
    if (x->matcher || x->set) return run_folded(r, stage, p, n, final, at, used);
    return x->joins ? run_joins(r, stage, p, n, final, at, used) : run_uncut(r, stage, p, n, final, at, used);
}

int split_run(const struct split *s, struct split_work *w, const unsigned char *p, size_t n, bool final,
              split_piece_fn *fn, void *arg, size_t *used, struct err *e)
{
    const struct run r = {.s = s, .w = w, .fn = fn, .arg = arg, .e = e};
    struct place at = {.origin = w->origin, .begins = w->begins};
    *used = 0;
    int code = s->n ? run_stage(&r, 0, p, n, final, at, used) : run_uncut(&r, -1, p, n, final, at, used);
    if (*used) w->begins = false;
    w->origin = origin_behind(w->origin, p, *used);
    return code;
}
