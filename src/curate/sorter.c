/* SPDX-License-Identifier: Apache-2.0 */
/* sorter.c: a radix sort in memory, runs on disk, a heap that merges them.
 *
 * In memory records are dealt in place into 256 boxes by the highest byte, then each box by the next one ("American
 * flag", McIlroy, Bostic, McIlroy 1993), and small boxes by insertion: hashes are spread evenly, so two or three bytes
 * are looked at. A run is written when the memory is full; more runs than can be merged at once are merged in groups
 * first. Records that all fit never touch the disk.
 */
#include "curate/sorter.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "curate/sorted_file.h"

enum { FAN_IN_MAX = 256, INSERTION = 24 };

/* ---- in memory ------------------------------------------------------------------------------------------------ */

int records_compare(const uint64_t *a, const uint64_t *b, int key_words)
{
    for (int i = 0; i < key_words; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

static void insertion(uint64_t *p, int64_t n, int words, int key_words)
{
    uint64_t held[SORTED_WORDS_MAX];
    size_t each = (size_t)words * 8;
    for (int64_t i = 1; i < n; i++) {
        int64_t j = i;
        while (j > 0 && records_compare(p + (j - 1) * words, p + i * words, key_words) > 0) j--;
        if (j == i) continue;
        memcpy(held, p + i * words, each);
        memmove(p + (j + 1) * words, p + j * words, to_size(i - j) * each);
        memcpy(p + j * words, held, each);
    }
}

static int byte_of(const uint64_t *record, int at) { return record[at / 8] >> (56 - at % 8 * 8) & 255; }

/* Deals p's records into boxes by byte `at`; box i becomes [start[i], start[i + 1]). */
static void deal(uint64_t *p, int64_t n, int words, int at, int64_t start[257])
{
    int64_t next[256], count[256] = {0};
    for (int64_t i = 0; i < n; i++) count[byte_of(p + i * words, at)]++;
    start[0] = 0;
    for (int b = 0; b < 256; b++) {
        next[b] = start[b];
        start[b + 1] = start[b] + count[b];
    }
    for (int b = 0; b < 256; b++)
        if (count[b] == n) return;
    for (int b = 0; b < 256; b++)
        while (next[b] < start[b + 1]) {
            uint64_t *here = p + next[b] * words;
            int to = byte_of(here, at);
            if (to != b) {
                uint64_t *there = p + next[to]++ * words;
                for (int k = 0; k < words; k++) {
                    uint64_t v = here[k];
                    here[k] = there[k];
                    there[k] = v;
                }
            } else {
                next[b]++;
            }
        }
}

/* Depth: a call for each byte that tells records apart, at most 8 * key_words. */
static void flag_sort(uint64_t *p, int64_t n, int words, int key_words, int at)
{
    if (n <= INSERTION) {
        insertion(p, n, words, key_words);
        return;
    }
    int64_t start[257];
    for (; at < 8 * key_words; at++) {
        deal(p, n, words, at, start);
        int b = byte_of(p, at);
        if (start[b + 1] - start[b] == n) continue;
        for (b = 0; b < 256; b++)
            if (start[b + 1] - start[b] > 1)
                flag_sort(p + start[b] * words, start[b + 1] - start[b], words, key_words, at + 1);
        return;
    }
}

void records_sort(uint64_t *records, int64_t n, int words, int key_words)
{
    flag_sort(records, n, words, key_words, 0);
}

/* ---- runs ----------------------------------------------------------------------------------------------------- */

struct merging {
    struct sorted_reader *from;
    const uint64_t *record; /* its first one that is not handed out */
};
struct sorter {
    struct sorter_config c;
    char *dir, *name;
    uint64_t *buffer;
    int64_t n, room;
    int64_t made, first; /* runs are numbered; those before `first` are merged and gone */
    bool finished;
    int64_t at;           /* in the buffer, where no run was written */
    struct merging *heap; /* a heap by record */
    int n_heap;
    int64_t opened;   /* runs before this one are in the heap, or read */
    bool taken;       /* the heap's first record was handed out */
    uint64_t *before; /* the record handed out last; for distinct ones */
    bool any;
};

struct sorter *sorter_new(const struct sorter_config *c)
{
    CHECK(c->words >= 1 && c->words <= SORTED_WORDS_MAX && c->key_words >= 1 && c->key_words <= c->words,
          "records of %d words with keys of %d", c->words, c->key_words);
    struct sorter *s = xcalloc(1, sizeof *s);
    s->c = *c;
    if (s->c.memory < SORTER_LEAST) s->c.memory = SORTER_LEAST;
    s->dir = xstrdup(c->dir);
    s->name = xstrdup(c->name);
    s->room = (int64_t)(s->c.memory / ((size_t)c->words * 8));
    return s;
}

static char *run_path(const struct sorter *s, int64_t i)
{
    struct str p = {0};
    str_printf(&p, "%s/%s.%lld", s->dir, s->name, (long long)i);
    return p.p;
}

static int write_run(struct sorter *s, struct err *e)
{
    records_sort(s->buffer, s->n, s->c.words, s->c.key_words);
    struct sorted_writer *w;
    char *path = run_path(s, s->made);
    int code = sorted_create(&w, path, s->c.words, 0, e);
    xfree(path);
    if (code) return code;
    for (int64_t i = 0; i < s->n && !code; i++) {
        const uint64_t *r = s->buffer + i * s->c.words;
        if (s->c.distinct && i && !records_compare(r - s->c.words, r, s->c.key_words)) continue;
        code = sorted_put(w, r, e);
    }
    if (code) {
        sorted_abandon(w);
        return code;
    }
    s->n = 0;
    s->made++;
    code = sorted_publish(w, false, e);
    return code;
}

int sorter_add(struct sorter *s, const uint64_t *records, int64_t n, struct err *e)
{
    CHECK(!s->finished, "%s: records after the end", s->name);
    size_t each = (size_t)s->c.words * 8;
    /* Memory is touched as records come, so few records cost little. */
    if (!s->buffer) s->buffer = xmalloc(to_size(s->room) * each);
    while (n > 0) {
        int64_t some = n < s->room - s->n ? n : s->room - s->n;
        memcpy(s->buffer + s->n * s->c.words, records, to_size(some) * each);
        s->n += some;
        records += some * s->c.words;
        n -= some;
        int code = s->n == s->room ? write_run(s, e) : OK;
        if (code) return code;
    }
    return OK;
}

/* ---- merging -------------------------------------------------------------------------------------------------- */

static bool before(const struct sorter *s, int i, int j)
{
    return records_compare(s->heap[i].record, s->heap[j].record, s->c.key_words) < 0;
}

static void sink(struct sorter *s, int i)
{
    for (int child; (child = 2 * i + 1) < s->n_heap; i = child) {
        if (child + 1 < s->n_heap && before(s, child + 1, child)) child++;
        if (!before(s, child, i)) return;
        struct merging m = s->heap[i];
        s->heap[i] = s->heap[child];
        s->heap[child] = m;
    }
}

static int fan_in(const struct sorter *s)
{
    size_t block = (size_t)s->c.words * 8 > SORTED_BLOCK ? (size_t)s->c.words * 8 : SORTED_BLOCK;
    size_t n = s->c.memory / block;
    return n < 2 ? 2 : n > FAN_IN_MAX ? FAN_IN_MAX : (int)n;
}

/* Opens runs [s->first, s->first + n) into the heap. */
static int open_runs(struct sorter *s, int64_t n, struct err *e)
{
    if (!s->heap) s->heap = xcalloc(FAN_IN_MAX, sizeof *s->heap);
    s->n_heap = 0;
    s->taken = false;
    for (int64_t i = 0; i < n; i++) {
        char *path = run_path(s, s->first + i);
        struct merging *m = &s->heap[s->n_heap];
        int code = sorted_open(&m->from, path, s->c.words, 0, e);
        xfree(path);
        int got = code ? code : sorted_next(m->from, &m->record, e);
        if (got <= 0) sorted_close(m->from);
        if (got < 0) return got;
        s->n_heap += got;
    }
    for (int i = s->n_heap / 2; i-- > 0;) sink(s, i);
    return OK;
}

static int pop(struct sorter *s, const uint64_t **record, struct err *e)
{
    if (s->taken) {
        int got = sorted_next(s->heap[0].from, &s->heap[0].record, e);
        if (got < 0) return got;
        if (got == 0) {
            sorted_close(s->heap[0].from);
            s->heap[0] = s->heap[--s->n_heap];
        }
        s->taken = false;
        sink(s, 0);
    }
    if (!s->n_heap) return 0;
    *record = s->heap[0].record;
    s->taken = true;
    return 1;
}

/* The next one whose key is new, where only such are wanted. */
static int pop_distinct(struct sorter *s, const uint64_t **record, struct err *e)
{
    size_t each = (size_t)s->c.words * 8;
    if (!s->before) s->before = xmalloc(each);
    for (;;) {
        int got = pop(s, record, e);
        if (got <= 0) return got;
        if (s->c.distinct && s->any && !records_compare(s->before, *record, s->c.key_words)) continue;
        s->any = true;
        if (s->c.distinct) memcpy(s->before, *record, each);
        return 1;
    }
}

static void remove_runs(struct sorter *s, int64_t n)
{
    for (; n-- > 0; s->first++) {
        char *path = run_path(s, s->first);
        unlink(path);
        xfree(path);
    }
}

/* The oldest runs, as many as can be merged at once, become the newest. */
static int merge_some(struct sorter *s, struct err *e)
{
    int64_t n = fan_in(s);
    struct sorted_writer *w;
    char *path = run_path(s, s->made);
    int code = open_runs(s, n, e);
    if (!code) code = sorted_create(&w, path, s->c.words, 0, e);
    xfree(path);
    if (code) return code;
    const uint64_t *record;
    int got;
    s->any = false;
    while ((got = pop_distinct(s, &record, e)) > 0 && !code) code = sorted_put(w, record, e);
    if (got < 0) code = got;
    s->any = false;
    if (code) {
        sorted_abandon(w);
        return code;
    }
    s->made++;
    code = sorted_publish(w, false, e);
    if (!code) remove_runs(s, n);
    return code;
}

int sorter_finish(struct sorter *s, struct err *e)
{
    s->finished = true;
    if (!s->made) {
        if (s->n) records_sort(s->buffer, s->n, s->c.words, s->c.key_words);
        return OK;
    }
    int code = s->n ? write_run(s, e) : OK;
    xfree(s->buffer);
    s->buffer = NULL;
    while (!code && s->made - s->first > fan_in(s)) code = merge_some(s, e);
    return code ? code : open_runs(s, s->made - s->first, e);
}

int sorter_next(struct sorter *s, const uint64_t **record, struct err *e)
{
    CHECK(s->finished, "%s: records are still to come", s->name);
    if (s->made) return pop_distinct(s, record, e);
    int words = s->c.words;
    for (; s->at < s->n; s->at++) {
        *record = s->buffer + s->at * words;
        if (s->c.distinct && s->at && !records_compare(*record - words, *record, s->c.key_words)) continue;
        s->at++;
        return 1;
    }
    return 0;
}

int64_t sorter_runs(const struct sorter *s) { return s->made; }

void sorter_free(struct sorter *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_heap; i++) sorted_close(s->heap[i].from);
    remove_runs(s, s->made - s->first);
    xfree(s->heap);
    xfree(s->buffer);
    xfree(s->before);
    xfree(s->dir);
    xfree(s->name);
    xfree(s);
}
