/* cutter.c: three nested cuts over one sliding buffer.
 *
 *   document  = text (added token  text)*          added.h
 *   text      = (valid UTF-8 | one bad byte)*      utf8.h
 *   valid     = pieces                             split.h
 *
 * The buffer holds what is not decided yet: at most one piece, plus one feed's step. Each level says how far it is
 * certain, and certainty only grows, so the result does not depend on how the text was parted. buf[at - 1] always
 * exists: that is where add_prefix_space puts its space.
 */
#include "data/cutter.h"

#include <string.h>

#include "base/mem.h"
#include "data/utf8.h"

enum { STEP = 64 << 10 };

struct cutter {
    const struct cut_rules *rules;
    struct cutter_sink sink;
    struct split_work *split;
    unsigned char *buf;
    size_t at, n, room; /* undecided: buf[at..n); at >= 1 */
    size_t scan;        /* no added token begins in buf[at..scan) */
    bool text_begins;   /* nothing of the current text has been cut yet */
    bool drop_space;    /* after an rstrip token */
};

static void begin_document(struct cutter *c)
{
    c->at = c->scan = c->n = 1;
    c->text_begins = true;
    c->drop_space = false;
}

struct cutter *cutter_new(const struct cut_rules *rules, struct cutter_sink sink)
{
    struct cutter *c = xcalloc(1, sizeof *c);
    *c = (struct cutter){.rules = rules, .sink = sink, .split = split_work_new(rules->split)};
    c->room = 2 * STEP;
    c->buf = xmalloc(c->room);
    begin_document(c);
    return c;
}

void cutter_free(struct cutter *c)
{
    if (!c) return;
    split_work_free(c->split);
    xfree(c->buf);
    xfree(c);
}

/* Cuts buf[at..end), a text or the beginning of one; moves `at` over what is decided. */
static int cut_text(struct cutter *c, size_t end, bool final, struct err *e)
{
    if (c->at == end) return OK;
    if (c->text_begins && c->rules->prefix_space && c->buf[c->at] != ' ') c->buf[--c->at] = ' ';
    c->text_begins = false;
    while (c->at < end) {
        const unsigned char *p = c->buf + c->at;
        size_t n = end - c->at, valid = utf8_run(p, n), used;
        int next = valid < n ? utf8_char(p + valid, n - valid) : -1;
        bool ends_here = next == 0 || final; /* a bad byte follows, or nothing: what follows is not part of this run */
        int code = split_run(c->rules->split, c->split, p, valid, ends_here, c->sink.piece, c->sink.arg, &used, e);
        c->at += used;
        if (code || used < valid) return code;
        if (valid == n) return OK;
        if (next < 0 && !final) return OK;
        c->sink.piece(c->sink.arg, c->buf + c->at, 1);
        c->at++;
    }
    return OK;
}

/* Drops white space after an rstrip token; false when more text is needed to know where it ends. */
static bool drop_space(struct cutter *c, bool final)
{
    while (c->at < c->n) {
        int len = utf8_space(c->buf + c->at, c->n - c->at);
        if (len == 0) {
            bool whole = final || utf8_char(c->buf + c->at, c->n - c->at) >= 0;
            if (whole) c->drop_space = false;
            return whole;
        }
        c->at += (size_t)len;
        c->scan = c->at;
    }
    if (final) c->drop_space = false;
    return final;
}

static int cut(struct cutter *c, bool final, struct err *e)
{
    const struct added *added = &c->rules->added;
    for (;;) {
        if (c->drop_space && !drop_space(c, final)) return OK;
        size_t found_at = 0;
        const struct added_token *t = added_find(added, c->buf, c->scan, c->n, final, &found_at, &c->scan);
        size_t end = t ? found_at : c->scan;
        if (t ? t->strip_before : added->any_strips_before && !final)
            end = c->at + utf8_space_before(c->buf + c->at, end - c->at);
        int code = cut_text(c, end, t || final, e);
        if (code || !t) return code;
        c->sink.token(c->sink.arg, t->id);
        c->at = c->scan = found_at + t->n;
        c->text_begins = true;
        c->drop_space = t->strip_after;
    }
}

int cutter_feed(struct cutter *c, const void *text, size_t n, struct err *e)
{
    const unsigned char *p = text;
    while (n > 0) {
        size_t step = n < STEP ? n : STEP;
        if (c->n + step > c->room && c->at > 1) {
            memmove(c->buf + 1, c->buf + c->at, c->n - c->at);
            c->n -= c->at - 1;
            c->scan -= c->at - 1;
            c->at = 1;
        }
        if (c->n + step > c->room) {
            c->room = 2 * (c->n + step);
            c->buf = xrealloc(c->buf, c->room);
        }
        memcpy(c->buf + c->n, p, step);
        c->n += step;
        p += step;
        n -= step;
        int code = cut(c, false, e);
        if (code) return code;
    }
    return OK;
}

int cutter_end(struct cutter *c, struct err *e)
{
    int code = cut(c, true, e);
    begin_document(c);
    return code;
}
