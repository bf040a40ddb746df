/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps write */
/* Every step of deduplication against plain loops over the whole corpus in memory, by several ranks with memory for a
 * small part of it: which documents stay and what is left in them, line by line; and the same bytes in every file
 * whatever the number of ranks.
 */
#include "scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/rng.h"
#include "curate/dedup.h"
#include "curate/minhash.h"
#include "curate/rewrite.h"
#include "curate/shingles.h"
#include "curate/spans.h"
#include "sanitized.h"

/* The n-th write(2) from now on: the process dies in the midst of it, or the disk is full from there on. */
static struct {
    int at;
    _Atomic int n;
    bool full;
} trouble;
ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (!trouble.at || fd <= 2 || ++trouble.n < trouble.at) return __real_write(fd, p, n);
    if (!trouble.full) {
        if (n > 1) (void)!__real_write(fd, p, n / 2);
        _exit(77);
    }
    errno = ENOSPC;
    return -1;
}

enum { MOST = 240, FILES = 5 };
struct text {
    char *p;
    size_t n;
    char *gone; /* by byte */
    bool removed;
};
struct made {
    char *dir;
    char *paths[FILES];
    struct text d[MOST]; /* in the order of the files */
    int n;
};

static uint32_t draw(uint64_t *k, uint32_t below) { return rng_u32(77, 1, (*k)++) % below; }

static void put_words(struct str *s, uint64_t *k, int n)
{
    static const char *const odd[] = {"\xC3\x84rger", "na\xC3\xAFve", "\xE4\xB8\xAD\xE6\x96\x87", "\"q\\uote\"",
                                      "tab\tbed"};
    for (int i = 0; i < n; i++) {
        uint32_t w = draw(k, 900);
        if (w < 30) str_puts(s, odd[w % 5]);
        else str_printf(s, "w%c%u", 'a' + (int)(w % 26), w);
        str_putc(s, draw(k, 12) ? ' ' : '\n');
        if (!draw(k, 40)) str_puts(s, "\n");
    }
}

/* Documents of which some are alike, nearly alike, share lines, or share stretches. */
static void make_texts(struct made *m)
{
    uint64_t k = 0;
    struct str s = {0}, stretch = {0};
    put_words(&stretch, &k, 60);
    for (m->n = 0; m->n < MOST / CASE_STRIDE; m->n++) {
        str_clear(&s);
        uint32_t kind = draw(&k, 10);
        const struct text *like = m->n ? &m->d[draw(&k, (uint32_t)m->n)] : NULL;
        if (kind < 2 && like) { /* the same, with other spaces */
            for (size_t i = 0; i < like->n; i++) {
                str_putc(&s, like->p[i]);
                if (like->p[i] == ' ' && kind) str_putc(&s, ' ');
            }
        } else if (kind < 4 && like && like->n > 60) { /* nearly: one word is another */
            size_t at = 20 + draw(&k, (uint32_t)like->n - 40);
            while (at > 0 && like->p[at] != ' ') at--;
            str_add(&s, like->p, at);
            str_puts(&s, " other ");
            str_add(&s, like->p + at, like->n - at);
        } else if (kind < 6) { /* shares a stretch */
            put_words(&s, &k, 5 + (int)draw(&k, 60));
            size_t from = draw(&k, (uint32_t)stretch.n / 2), n = 30 + draw(&k, (uint32_t)stretch.n / 2 - 30);
            if (draw(&k, 2)) n = stretch.n - from; /* many end alike */
            while (((unsigned char)stretch.p[from] & 0xC0) == 0x80) from++;
            while (from + n < stretch.n && ((unsigned char)stretch.p[from + n] & 0xC0) == 0x80) n++;
            if (from + n > stretch.n) n = stretch.n - from;
            str_add(&s, stretch.p + from, n);
            str_puts(&s, draw(&k, 2) ? "\xC3\xA4" : "\xC3\xB6"); /* one byte more agrees, which is no character */
            put_words(&s, &k, 5 + (int)draw(&k, 60));
        } else if (kind == 6) { /* repeats itself */
            for (int i = 0; i < 120; i++) str_puts(&s, "ab\n");
        } else {
            put_words(&s, &k, 3 + (int)draw(&k, 120));
        }
        m->d[m->n] = (struct text){.p = xmalloc(s.n + 1), .n = s.n, .gone = xcalloc(s.n + 1, 1)};
        memcpy(m->d[m->n].p, str_text(&s), s.n + 1);
    }
    str_free(&s);
    str_free(&stretch);
}

static void write_files(struct made *m)
{
    struct err e = {0};
    for (int f = 0; f < FILES; f++) {
        struct str s = {0};
        char name[32];
        snprintf(name, sizeof name, "in%d.jsonl", f);
        m->paths[f] = fs_join(m->dir, name);
        for (int i = m->n * f / FILES; i < m->n * (f + 1) / FILES; i++) {
            str_printf(&s, "{\"id\": %d, \"text\": ", i);
            rewrite_string(&s, m->d[i].p, m->d[i].n);
            str_puts(&s, ", \"score\": 1.50}\n");
        }
        assert_int_equal(fs_write_atomic(m->paths[f], s.p, s.n, &e), OK);
        str_free(&s);
    }
}

static int set_up(void **state)
{
    struct made *m = xcalloc(1, sizeof *m);
    m->dir = scratch_new();
    make_texts(m);
    write_files(m);
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    struct made *m = *state;
    for (int i = 0; i < m->n; i++) {
        xfree(m->d[i].p);
        xfree(m->d[i].gone);
    }
    for (int f = 0; f < FILES; f++) xfree(m->paths[f]);
    scratch_free(m->dir);
    xfree(m);
    return 0;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

struct ran {
    struct dedup_config c;
    struct dedup_result r;
};
static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct ran *x = arg;
    struct dedup_result r;
    int code = dedup_run(world, &x->c, &r, e);
    if (comm_rank(world) == 0) x->r = r;
    return code;
}

static struct dedup_config config_of(const struct made *m, const char *out, enum dedup_kind kind)
{
    return (struct dedup_config){.inputs = (const char *const *)m->paths,
                                 .n_inputs = FILES,
                                 .out = out,
                                 .steps = {kind},
                                 .n_steps = 1,
                                 .normal = NORMAL_SPACE,
                                 .line_least = 4,
                                 .shingles = "words:3",
                                 .threshold = 0.7,
                                 .hashes = 64,
                                 .seed = 3,
                                 .verify = true,
                                 .repeat_least = 40,
                                 .part_bytes = 1 << 20,
                                 .unit_bytes = 1,
                                 .memory = DEDUP_MEMORY_LEAST,
                                 .samples = 3,
                                 .list = true};
}

/* All files of a result, one behind the other. */
static void read_result(const char *dir, struct str *all)
{
    struct err e = {0};
    char **names;
    int n;
    assert_int_equal(fs_list(dir, &names, &n, &e), OK);
    str_clear(all);
    for (int i = 0; i < n; i++) {
        char *path = fs_join(dir, names[i]), *p;
        size_t size;
        assert_int_equal(fs_read_all(path, 1 << 26, &p, &size, &e), OK);
        str_printf(all, "== %s\n", names[i]);
        str_add(all, p, size);
        xfree(p);
        xfree(path);
    }
    fs_list_free(names, n);
}

/* The result by `ranks` ranks is what the loops left in m->d. */
static void check_texts(const struct made *m, const struct ran *x)
{
    int next = 0;
    struct str want = {0};
    for (int f = 0; f < FILES; f++) {
        char name[32];
        struct err e = {0};
        size_t n;
        snprintf(name, sizeof name, "part-%05d.jsonl", f);
        char *path = fs_join(x->c.out, name), *p;
        assert_int_equal(fs_read_all(path, 1 << 26, &p, &n, &e), OK);
        for (const char *at = p; *at; at = strchr(at, '\n') + 1) {
            struct json *j;
            assert_int_equal(json_parse(&j, at, (size_t)(strchr(at, '\n') - at), "line", &e), OK);
            for (;; next++) { /* the next that stays */
                assert_true(next < m->n);
                str_clear(&want);
                bool blank = true;
                for (size_t i = 0; i < m->d[next].n; i++)
                    if (!m->d[next].gone[i]) {
                        str_putc(&want, m->d[next].p[i]);
                        blank = blank && strchr(" \n\t", m->d[next].p[i]);
                    }
                if (!m->d[next].removed && !blank) break;
            }
            if (json_int(json_get(j, "id"), -1) != next)
                fail_msg("document %lld stays, %d should be next", (long long)json_int(json_get(j, "id"), -1), next);
            assert_string_equal(json_string(json_get(j, "text"), NULL, ""), str_text(&want));
            assert_true(memmem(at, (size_t)(strchr(at, '\n') - at), "\"score\": 1.50}", 14) != NULL);
            json_free(j);
            next++;
        }
        xfree(p);
        xfree(path);
    }
    for (; next < m->n; next++) {
        bool left = false;
        for (size_t i = 0; i < m->d[next].n; i++)
            left = left || (!m->d[next].gone[i] && !strchr(" \n\t", m->d[next].p[i]));
        assert_true(m->d[next].removed || !left);
    }
    str_free(&want);
}

/* Runs the config with 1, 2 and 4 ranks: one result. */
static void run_all(struct made *m, struct dedup_config c, bool texts)
{
    struct str first = {0}, again = {0};
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        char name[32];
        struct err e = {0};
        snprintf(name, sizeof name, "out-%d-%d", c.steps[0], ranks);
        char *out = fs_join(m->dir, name);
        struct ran x = {.c = c};
        x.c.out = out;
        if (comm_run_local(ranks, &(struct comm_config){0}, run_rank, &x, &e)) fail_msg("%d ranks: %s", ranks, e.text);
        if (ranks == 1 && texts) check_texts(m, &x);
        read_result(out, ranks == 1 ? &first : &again);
        if (ranks > 1) assert_string_equal(first.p, again.p);
        assert_int_equal(x.r.documents_in, m->n);
        assert_true(x.r.steps[0].bytes > 0);
        assert_int_equal(fs_remove_tree(out, &e), OK);
        xfree(out);
    }
    str_free(&first);
    str_free(&again);
}

static void forget(struct made *m)
{
    for (int i = 0; i < m->n; i++) {
        m->d[i].removed = false;
        memset(m->d[i].gone, 0, m->d[i].n);
    }
}

/* ---- the steps -----------------------------------------------------------------------------------------------------
 */

static void exact(void **state)
{
    struct made *m = *state;
    for (int kind = 0; kind < N_NORMAL_KINDS; kind++) {
        struct str *form = xcalloc((size_t)m->n, sizeof *form);
        struct dedup_config c = config_of(m, "", DEDUP_EXACT);
        c.normal = (enum normal_kind)kind;
        forget(m);
        for (int i = 0; i < m->n; i++) {
            normal_add(c.normal, m->d[i].p, m->d[i].n, &form[i]);
            for (int k = 0; k < i && !m->d[i].removed; k++)
                m->d[i].removed = !strcmp(str_text(&form[i]), str_text(&form[k]));
        }
        run_all(m, c, true);
        for (int i = 0; i < m->n; i++) str_free(&form[i]);
        xfree(form);
    }
}

/* Marks what of document i begins or ends inside a character. */
static void whole_characters(struct text *d)
{
    for (size_t i = 0; i < d->n;) {
        size_t end = i + 1;
        bool all = true;
        while (end < d->n && ((unsigned char)d->p[end] & 0xC0) == 0x80) end++;
        for (size_t k = i; k < end; k++) all = all && d->gone[k];
        for (size_t k = i; k < end; k++) d->gone[k] = all;
        i = end;
    }
}

struct seen {
    struct made *m;
    struct str *forms;
    int n, room, document;
    enum normal_kind normal;
};
/* A line or paragraph as spans.h cuts it, but compared by its text with all before. */
static int see(void *ctx, struct hash128 h, size_t from, size_t to, struct err *e)
{
    (void)h, (void)e;
    struct seen *s = ctx;
    struct text *d = &s->m->d[s->document];
    struct str form = {0};
    size_t body = to;
    while (body > from && strchr("\n\r", d->p[body - 1])) body--;
    normal_add(s->normal, d->p + from, body - from, &form);
    for (int i = 0; i < s->n; i++)
        if (form.n == s->forms[i].n && !memcmp(form.p, s->forms[i].p, form.n)) {
            memset(d->gone + from, 1, to - from);
            str_free(&form);
            return OK;
        }
    GROW(s->forms, s->n, s->room, 1);
    s->forms[s->n++] = form;
    return OK;
}

static void lines_of(struct made *m, enum dedup_kind kind, enum span_kind span)
{
    struct dedup_config c = config_of(m, "", kind);
    struct seen s = {.m = m, .normal = c.normal};
    struct err e = {0};
    struct span_cutter cutter = {.kind = span, .normal = c.normal, .least = (size_t)c.line_least};
    forget(m);
    for (s.document = 0; s.document < m->n; s.document++)
        spans_cut(&cutter, m->d[s.document].p, m->d[s.document].n, see, &s, &e);
    run_all(m, c, true);
    for (int i = 0; i < s.n; i++) str_free(&s.forms[i]);
    xfree(s.forms);
    spans_fini(&cutter);
}

static void lines(void **state) { lines_of(*state, DEDUP_LINES, SPAN_LINES); }

static void paragraphs(void **state) { lines_of(*state, DEDUP_PARAGRAPHS, SPAN_PARAGRAPHS); }

/* Documents that share a band are compared each with each up to this many; more of them each with the first and with
 * the one before it. */
enum { PAIRS_ALL = 32 };

/* given: so many bands of so many rows; 0: as they are chosen. */
static void near_of(struct made *m, bool crowded, int given, int of)
{
    struct dedup_config c = config_of(m, "", DEDUP_NEAR);
    struct minhash h;
    int bands = given, rows = of, *up = xmalloc((size_t)m->n * sizeof *up), n_edges = 0, alone[64] = {0};
    if (given) c.bands = given, c.rows = of;
    else minhash_choose(c.threshold, (int)c.hashes, &bands, &rows);
    minhash_init(&h, bands, rows, c.seed);
    uint32_t(*min)[64] = xcalloc((size_t)m->n, sizeof *min);
    uint64_t(*packed)[16] = xcalloc((size_t)m->n, sizeof *packed);
    struct shingles s = {0};
    shingles_parse(&s, c.shingles);
    int(*place)[64] = xcalloc((size_t)m->n, sizeof *place); /* of a document among those that share its band */
    for (int verify = 0; verify < 2; verify++) {
        int most = 0, left_out = 0;
        forget(m);
        for (int i = 0; i < m->n; i++) {
            shingles_of(&s, m->d[i].p, m->d[i].n);
            assert_true(s.count > 0);
            minhash_sign(&h, s.hash, s.count, min[i]);
            minhash_pack(&h, min[i], packed[i]);
            up[i] = i;
            for (int b = 0; b < bands; b++) {
                place[i][b] = 0;
                for (int k = 0; k < i; k++)
                    place[i][b] += !memcmp(&min[i][b * rows], &min[k][b * rows], (size_t)rows * 4);
                if (place[i][b] > most) most = place[i][b];
            }
        }
        for (int i = 0; i < m->n; i++)
            for (int k = 0; k < i; k++) {
                bool band = false, shared = false;
                int n_shared = 0, which = 0;
                for (int b = 0; b < bands; b++) {
                    if (memcmp(&min[i][b * rows], &min[k][b * rows], (size_t)rows * 4) != 0) continue;
                    shared = true;
                    n_shared++;
                    which = b;
                    band = band || place[i][b] < PAIRS_ALL || place[k][b] == 0 || place[k][b] == place[i][b] - 1;
                }
                left_out += shared && !band;
                if (!band || (verify && minhash_similarity(&h, minhash_agree(&h, packed[i], packed[k])) < c.threshold))
                    continue;
                int a = i, b = k;
                while (up[a] != a) a = up[a];
                while (up[b] != b) b = up[b];
                alone[which] += n_shared == 1 && a != b;
                up[a > b ? a : b] = a < b ? a : b;
                n_edges++;
            }
        for (int i = 0; i < m->n; i++) m->d[i].removed = up[i] != i;
        for (int b = 0; given && !SANITIZED && b < bands; b++) assert_true(alone[b] > 1);
        assert_true(n_edges > 20 / CASE_STRIDE);
        assert_true(crowded == (most > 2 * PAIRS_ALL && left_out > 0));
        c.verify = verify;
        run_all(m, c, true);
    }
    shingles_free(&s);
    minhash_fini(&h);
    xfree(up);
    xfree(min);
    xfree(packed);
    xfree(place);
}

static void near(void **state) { near_of(*state, false, 0, 0); }

/* So long that a pair often shares one of them alone, each of them sometimes. */
static void near_by_one_band(void **state) { near_of(*state, false, 4, 14); }

/* Bands that many more documents share than are compared each with each: a text of which some words change. */
static void crowd(void **state)
{
    (void)state;
    struct made *m = xcalloc(1, sizeof *m);
    uint64_t k = 5;
    enum { WORDS = 150 };
    m->dir = scratch_new();
    for (m->n = 0; m->n < 130; m->n++) {
        struct str s = {0};
        uint32_t other[WORDS] = {0};
        for (uint32_t change = draw(&k, 12); change > 0; change--) other[draw(&k, WORDS)] = 1 + draw(&k, 90);
        if (m->n % 13 == 6) put_words(&s, &k, WORDS); /* every file keeps something */
        else
            for (uint32_t i = 0; i < WORDS; i++) str_printf(&s, "w%u ", other[i] ? 1000 + other[i] : i);
        m->d[m->n] = (struct text){.p = s.p, .n = s.n, .gone = xcalloc(s.n + 1, 1)};
    }
    write_files(m);
    near_of(m, true, 0, 0);
    tear_down((void *)&m);
}

/* The text of all documents of a unit, by documents' numbers. */
static void substring(void **state)
{
    struct made *m = *state;
    struct dedup_config c = config_of(m, "", DEDUP_SUBSTRING);
    size_t least = (size_t)c.repeat_least;
    int64_t n_gone = 0;
    forget(m);
    for (int f = 0; f < FILES; f++) {
        int lo = m->n * f / FILES, hi = m->n * (f + 1) / FILES;
        for (int i = lo; i < hi; i++)
            for (size_t at = 0; at + least <= m->d[i].n; at++) { /* an earlier place with the same bytes? the first */
                bool found = false;
                for (int k = lo; k <= i && !found; k++)
                    for (const char *p = m->d[k].p, *end = p + m->d[k].n;
                         !found && (p = memmem(p, (size_t)(end - p), m->d[i].p + at, least)) != NULL; p++) {
                        size_t first = (size_t)(p - m->d[k].p), from = at;
                        if (k == i && first >= at) break;
                        if (k == i && from < first + least) from = first + least;
                        if (from < at + least) memset(m->d[i].gone + from, 1, at + least - from);
                        found = true;
                    }
            }
        for (int i = lo; i < hi; i++) whole_characters(&m->d[i]);
        for (int i = lo; i < hi; i++)
            for (size_t k = 0; k < m->d[i].n; k++) n_gone += m->d[i].gone[k];
    }
    assert_true(n_gone > 1000 / CASE_STRIDE);
    run_all(m, c, true);
}

/* Passages: what goes is there earlier; what is there earlier and long enough goes, but for its ends. */
static void passages(void **state)
{
    struct made *m = *state;
    struct dedup_config c = config_of(m, "", DEDUP_PASSAGES);
    size_t least = (size_t)c.repeat_least, surely = least + passage_apart(least) - 1, n_must = 0;
    struct err e = {0};
    forget(m);
    run_all(m, c, false);
    struct ran x = {.c = c};
    x.c.out = fs_join(m->dir, "passages");
    assert_int_equal(comm_run_local(2, &(struct comm_config){0}, run_rank, &x, &e), OK);
    for (int f = 0; f < FILES; f++) {
        char name[32], *p;
        size_t size;
        snprintf(name, sizeof name, "removed-%05d.jsonl", f);
        char *path = fs_join(x.c.out, name);
        if (fs_read_all(path, 1 << 26, &p, &size, &e)) p = xstrdup("");
        for (const char *at = p; *at; at = strchr(at, '\n') + 1) {
            struct json *j;
            assert_int_equal(json_parse(&j, at, (size_t)(strchr(at, '\n') - at), "line", &e), OK);
            struct text *d = &m->d[m->n * f / FILES + json_int(json_get(j, "document"), -1)];
            int64_t from = json_int(json_get(j, "from"), -1), n = json_int(json_get(j, "bytes"), -1);
            assert_true(from >= 0 && n > 0 && from + n <= (int64_t)d->n);
            assert_memory_equal(json_string(json_get(j, "text"), NULL, ""), d->p + from, (size_t)n);
            memset(d->gone + from, 1, (size_t)n);
            json_free(j);
        }
        xfree(p);
        xfree(path);
    }
    for (int i = 0; i < m->n; i++)
        for (size_t at = 0; at < m->d[i].n; at++) {
            bool earlier[2] = {false}, any_gone = false; /* the stretches of these lengths from here are there before */
            const size_t length[2] = {least, surely};
            for (int w = 0; w < 2; w++)
                for (int k = 0; k <= i && at + length[w] <= m->d[i].n && !earlier[w]; k++) {
                    const char *p = memmem(m->d[k].p, m->d[k].n, m->d[i].p + at, length[w]);
                    earlier[w] = p && (k < i || p < m->d[i].p + at);
                }
            /* Long enough and not upon itself: some of it goes. */
            bool fits = at + surely <= m->d[i].n;
            const char *self = fits ? memmem(m->d[i].p, at + surely - 1, m->d[i].p + at, surely) : NULL;
            for (size_t k = at; k < at + surely && k < m->d[i].n; k++) any_gone = any_gone || m->d[i].gone[k];
            if (earlier[1] && !self) {
                assert_true(any_gone);
                n_must++;
            }
            /* A byte that goes lies in a stretch that is there before. */
            if (earlier[0])
                for (size_t k = at; k < at + least; k++) m->d[i].gone[k] |= 2;
        }
    for (int i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->d[i].n; k++) assert_int_not_equal(m->d[i].gone[k], 1);
    assert_true(n_must > 100 / CASE_STRIDE);
    /* A text that repeats itself keeps a stretch of it: the first such document. */
    for (int i = 0, found = 0; i < m->n && !found; i++) {
        found = m->d[i].n == 360 && !strncmp(m->d[i].p, "ab\nab\n", 6);
        size_t stays = 0;
        for (size_t k = 0; found && k < m->d[i].n; k++) stays += !(m->d[i].gone[k] & 1);
        if (found) assert_true(stays >= least && stays < 2 * surely);
    }
    xfree((char *)x.c.out);
}

/* All of them in turn, with several files to a unit. */
static void in_turn(void **state)
{
    struct made *m = *state;
    struct dedup_config c = config_of(m, "", DEDUP_EXACT);
    c.n_steps = 6;
    for (int i = 0; i < 6; i++) c.steps[i] = (enum dedup_kind)i;
    c.unit_bytes = 60000 / CASE_STRIDE;
    c.part_bytes = 5000;
    run_all(m, c, false);
}

/* What has its final name is what it is in the whole result; but the list of all that is. */
static void check_final(const char *out, const char *want)
{
    struct err e = {0};
    char **names;
    int n;
    assert_int_equal(fs_list(out, &names, &n, &e), OK);
    for (int i = 0; i < n; i++) {
        char *here = fs_join(out, names[i]), *there = fs_join(want, names[i]), *p, *q;
        size_t size, other;
        if (!fs_is_dir(here) && !str_ends(here, ".part") && !str_ends(here, ".lock") && !strstr(here, ".tmp")) {
            assert_int_equal(fs_read_all(here, 1 << 26, &p, &size, &e), OK);
            if (fs_read_all(there, 1 << 26, &q, &other, &e)) fail_msg("%s: %s", here, e.text);
            if (size != other || memcmp(p, q, size)) fail_msg("%s is not whole", here);
            xfree(p);
            xfree(q);
        }
        xfree(here);
        xfree(there);
    }
    fs_list_free(names, n);
}

static void remove_in(const char *dir, const char *name)
{
    struct err e = {0};
    char *path = fs_join(dir, name);
    assert_int_equal(fs_remove_tree(path, &e), OK);
    xfree(path);
}

/* Killed at every write, and a disk that is full from every write on: it goes on to the same bytes. */
static void killed(void **state)
{
    struct made *m = *state;
    struct dedup_config c = config_of(m, "", DEDUP_EXACT);
    struct str first = {0}, again = {0};
    struct err e = {0};
    c.n_steps = 6;
    for (int i = 0; i < 6; i++) c.steps[i] = (enum dedup_kind)i;
    c.unit_bytes = 40000 / CASE_STRIDE;
    struct ran x = {.c = c};
    char *want = fs_join(m->dir, "whole"), *out = fs_join(m->dir, "killed");
    x.c.out = want;
    assert_int_equal(comm_run_local(2, &(struct comm_config){0}, run_rank, &x, &e), OK);
    read_result(want, &first);
    x.c.out = out;
    int n_died = 0;
    for (int at = 1;; at += SANITIZED ? 7 : 3) {
        bool full = at % 2;
        pid_t child = fork();
        if (!child) {
            trouble.at = at;
            trouble.full = full;
            struct err why = {0};
            int code = comm_run_local(2, &(struct comm_config){0}, run_rank, &x, &why);
            if (code && !strstr(why.text, "free some space")) fprintf(stderr, "at write %d: %s\n", at, why.text);
            _exit(code ? (strstr(why.text, "free some space") ? 78 : 79) : 0);
        }
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 0) break;
        assert_int_equal(WEXITSTATUS(status), full ? 78 : 77);
        n_died++;
        check_final(out, want);
        struct ran y = x; /* by the same ranks: what is done is taken over */
        if (comm_run_local(2, &(struct comm_config){0}, run_rank, &y, &e)) {
            char *finished = fs_join(out, "dedup.json"); /* it died behind its last word */
            if (!fs_exists(finished)) fail_msg("at write %d: %s", at, e.text);
            remove_in(out, "dedup.work");
            remove_in(out, "dedup.lock");
            xfree(finished);
        }
        read_result(out, &again);
        assert_string_equal(first.p, again.p);
        assert_int_equal(fs_remove_tree(out, &e), OK);
    }
    printf("  %d times cut short\n", n_died);
    assert_true(n_died > (SANITIZED ? 2 : 5));
    xfree(want);
    xfree(out);
    str_free(&first);
    str_free(&again);
}

static int run_other_rank(struct comm *world, void *arg, struct err *e)
{
    struct ran x = *(struct ran *)arg;
    struct dedup_result r;
    if (comm_rank(world) == 1) x.c.n_inputs--;
    return dedup_run(world, &x.c, &r, e);
}

/* A rank that sees other files than rank 0 (a mount is missing) would drop other documents. */
static void other_inputs(void **state)
{
    struct made *m = *state;
    struct err e = {0};
    struct ran x = {.c = config_of(m, "", DEDUP_EXACT)};
    char *out = fs_join(m->dir, "others"), words[64];
    x.c.out = out;
    assert_int_equal(comm_run_local(2, &(struct comm_config){0}, run_other_rank, &x, &e), ERR_REQUEST);
    snprintf(words, sizeof words, "rank 1 sees other inputs than rank 0: %d files", FILES - 1);
    if (!strstr(e.text, words)) fail_msg("%s", e.text);
    assert_false(fs_exists(out));
    xfree(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_inputs), cmocka_unit_test(exact),
                                       cmocka_unit_test(lines),        cmocka_unit_test(paragraphs),
                                       cmocka_unit_test(near),         cmocka_unit_test(near_by_one_band),
                                       cmocka_unit_test(crowd),        cmocka_unit_test(substring),
                                       cmocka_unit_test(passages),     cmocka_unit_test(in_turn),
                                       cmocka_unit_test(killed)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
