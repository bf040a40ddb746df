/* SPDX-License-Identifier: Apache-2.0 */
/* dedup_substring.c: stretches that a part of the corpus holds twice, by a suffix array (Lee et al. 2022).
 *
 * A part is documents of a unit that follow each other, of part_bytes together at most, or one larger document: so
 * parts depend on the corpus alone. Its documents are put one behind the other with a byte 0xFF between, which UTF-8
 * does not have; its suffixes are sorted (libdivsufsort), so all stretches of `least` bytes that are the same are
 * neighbours. Of those the first in the corpus stays, the others go; stretches that overlap go together. Every byte
 * that goes is thus in a stretch of `least` bytes that an earlier place has too. A stretch with a byte 0xFF is left
 * alone. Memory: 6 bytes per byte of a part. Repeats between parts are another step's (passages).
 */
#include <divsufsort.h>
#include <string.h>

#include "base/mem.h"
#include "curate/dedup_impl.h"

struct part {
    struct dedup_job *job;
    struct shuffle *edits;
    struct str text;
    uint64_t *document; /* of the part, and where each begins in text */
    int64_t *start;
    int64_t n, room, start_room;
    int64_t unit; /* of its documents */
    int32_t *sorted;
    char *gone; /* by byte of text */
};

static bool same(const struct part *p, int64_t a, int64_t b)
{
    int64_t least = p->job->config->repeat_least, n = (int64_t)p->text.n;
    return a + least <= n && b + least <= n && !memcmp(p->text.p + a, p->text.p + b, to_size(least));
}

/* Of the suffixes sorted[lo..hi), which begin alike, all but the first in the text. */
static void mark(struct part *p, int64_t lo, int64_t hi)
{
    int64_t least = p->job->config->repeat_least, first = p->sorted[lo];
    if (memchr(p->text.p + first, 0xFF, to_size(least))) return;
    for (int64_t i = lo + 1; i < hi; i++)
        if (p->sorted[i] < first) first = p->sorted[i];
    for (int64_t i = lo; i < hi; i++) {
        int64_t at = p->sorted[i], from = at < first + least ? first + least : at;
        if (at != first) memset(p->gone + from, 1, to_size(at + least - from));
    }
}

/* The first place of the text that begins with the `least` bytes at `at`. */
static int64_t first_like(const struct part *p, int64_t at)
{
    int64_t n = (int64_t)p->text.n, least = p->job->config->repeat_least, lo = 0, hi = n, first = at;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2, s = p->sorted[mid], room = n - s < least ? n - s : least;
        int order = memcmp(p->text.p + s, p->text.p + at, to_size(room));
        if (order < 0 || (order == 0 && room < least)) lo = mid + 1;
        else hi = mid;
    }
    for (; lo < n && same(p, p->sorted[lo], at); lo++)
        if (p->sorted[lo] < first) first = p->sorted[lo];
    return first;
}

static int64_t document_at(const struct part *p, int64_t at)
{
    int64_t lo = 0, hi = p->n;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (p->start[mid] <= at) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* Stretches of gone bytes become edits. */
static int emit(struct part *p, struct err *e)
{
    int64_t n = (int64_t)p->text.n, least = p->job->config->repeat_least;
    for (int64_t at = 0; at < n; at++) {
        if (!p->gone[at]) continue;
        int64_t end = at;
        while (end < n && p->gone[end]) end++;
        int64_t d = document_at(p, at), from = at - p->start[d];
        int64_t like = at + least <= n ? first_like(p, at) : at;
        /* No earlier one: it repeats what is just before it. */
        int64_t first = like < at ? like : at - least, o = document_at(p, first);
        uint64_t of = edit_span((uint64_t)(first - p->start[o]), (uint64_t)(first - p->start[o] + end - at));
        int code = dedup_edit(p->job, p->edits, p->document[d], edit_span((uint64_t)from, (uint64_t)(from + end - at)),
                              p->document[o], of, e);
        if (code) return code;
        at = end;
    }
    return OK;
}

/* The part is whole: its edits; then it is empty. */
static int flush(struct part *p, struct err *e)
{
    int64_t n = (int64_t)p->text.n;
    if (!p->n) return OK;
    CHECK(n < INT32_MAX, "a part of %lld bytes", (long long)n);
    p->sorted = xmalloc(to_size(n) * sizeof *p->sorted);
    p->gone = xcalloc(to_size(n), 1);
    int code = OK;
    if (divsufsort((const sauchar_t *)p->text.p, p->sorted, (saidx_t)n))
        code = err_set(e, ERR_MEMORY, "no memory to sort the suffixes of %lld bytes; lower --part", (long long)n);
    for (int64_t lo = 0, hi; lo < n && !code; lo = hi) {
        for (hi = lo + 1; hi < n && same(p, p->sorted[hi - 1], p->sorted[hi]); hi++) continue;
        if (hi - lo > 1) mark(p, lo, hi);
    }
    if (!code) code = emit(p, e);
    xfree(p->sorted);
    xfree(p->gone);
    str_clear(&p->text);
    p->n = 0;
    return code;
}

static int collect(void *ctx, const struct corpus_document *d, struct err *e)
{
    struct part *p = ctx;
    int64_t unit = corpus_unit_of(p->job->corpus, d->id);
    if (p->n && (unit != p->unit || (int64_t)(p->text.n + d->n) + 1 > p->job->config->part_bytes)) {
        int code = flush(p, e);
        if (code) return code;
    }
    p->unit = unit;
    GROW(p->document, p->n, p->room, 1);
    GROW(p->start, p->n, p->start_room, 1);
    p->document[p->n] = d->id;
    p->start[p->n++] = (int64_t)p->text.n;
    str_add(&p->text, d->text, d->n);
    str_putc(&p->text, (char)0xFF);
    return OK;
}

int dedup_substring(struct dedup_job *j, int step, struct shuffle *edits, struct err *e)
{
    struct part p = {.job = j, .edits = edits};
    int code = dedup_scan(j, step, collect, &p, e);
    if (!code) code = flush(&p, e);
    str_free(&p.text);
    xfree(p.document);
    xfree(p.start);
    return code;
}
