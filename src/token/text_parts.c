/* SPDX-License-Identifier: Apache-2.0 */
/* text_parts.c: copies text out of the source until a part is full and a stretch ends.
 *
 * A stretch that is long enough ends at the next seam. Where there is none and the part is as long as it may be, the
 * part is handed out all the same and the next one goes on with it (then both are encoded in turn, by one encoder).
 */
#include "token/text_parts.h"

#include <string.h>

#include "base/mem.h"

enum { ENDS_MAX = 1 << 16, LOOK = 4096 };
static const struct parts_sizes usual = {.stretch = 512 << 10, .part = 1 << 20, .most = 4 << 20};

struct parts {
    struct source *source;
    const struct seams *seams;
    struct parts_sizes size;
    struct parts_place at; /* of what was put into parts; `document` have ended in this file */
    bool inside;           /* a document is open */
    const char *text;      /* of it, read and not put into a part yet */
    size_t n;
    int64_t stretch; /* bytes of the open stretch */
    bool follows;    /* the next part begins in the middle of it */
};

void part_fini(struct part *p)
{
    xfree(p->text);
    xfree(p->ends);
    xfree(p->begins);
    *p = (struct part){0};
}

struct parts *parts_new(struct source *s, const struct seams *seams, const struct parts_sizes *sizes)
{
    struct parts *p = xcalloc(1, sizeof *p);
    p->source = s;
    p->seams = seams;
    p->size = sizes ? *sizes : usual;
    p->at.file = -1;
    return p;
}

void parts_free(struct parts *p) { xfree(p); }

/* The next document begins. */
static int begin_document(struct parts *p, struct err *e)
{
    int got = source_next(p->source, e);
    if (got <= 0) return got;
    int64_t file = source_file(p->source);
    if (file != p->at.file) p->at.document = 0;
    p->at.file = file;
    p->inside = true;
    p->stretch = 0;
    p->n = 0;
    return 1;
}

static void note_begin(const struct parts *p, struct part *out)
{
    struct source_place where;
    source_where(p->source, &where);
    GROW(out->begins, out->n_begins, out->begins_room, 1);
    out->begins[out->n_begins++] = (struct part_begin){p->at.file, where.offset};
}

static void end_stretch(struct parts *p, struct part *out, bool document)
{
    GROW(out->ends, out->n_ends, out->ends_room, 1);
    out->ends[out->n_ends++] = (struct part_end){out->n, document};
    p->stretch = 0;
    p->follows = false;
    if (!document) return;
    p->inside = false;
    p->at.document++;
    p->at.documents++;
    p->at.byte = 0;
}

static void move(struct parts *p, struct part *out, size_t n)
{
    GROW(out->text, out->n, out->room, n);
    memcpy(out->text + out->n, p->text, n);
    out->n += n;
    p->text += n;
    p->n -= n;
    p->stretch += (int64_t)n;
    p->at.byte += (int64_t)n;
    p->at.bytes += (int64_t)n;
}

/* Puts what was read into the part, up to a seam where one is due. */
static void take(struct parts *p, struct part *out)
{
    size_t room = p->size.most - out->n, n = p->n < room ? p->n : room;
    if ((size_t)p->stretch < p->size.stretch) {
        size_t rest = p->size.stretch - (size_t)p->stretch;
        move(p, out, n < rest ? n : rest);
        return;
    }
    size_t from = out->n;
    if (n > LOOK) n = LOOK;
    GROW(out->text, out->n, out->room, n);
    memcpy(out->text + from, p->text, n); /* the seam is looked for where the text before it is */
    size_t at = from ? from : 1;
    while (at < from + n && !seam_at(p->seams, (unsigned char *)out->text, at)) at++;
    move(p, out, at < from + n ? at - from : n);
    if (at < from + n) end_stretch(p, out, false);
}

static void close_part(struct parts *p, struct part *out)
{
    out->open = p->stretch > 0;
    out->after = p->at;
    out->source_done = source_bytes_done(p->source);
    out->source_skipped = source_n_skipped(p->source);
    p->follows = out->open;
}

int parts_read(struct parts *p, struct part *out, struct err *e)
{
    out->n = 0;
    out->n_ends = out->n_begins = 0;
    out->follows = p->follows;
    int got = 1;
    while (got > 0) {
        bool full = (out->n >= p->size.part && p->stretch == 0) || out->n == p->size.most || out->n_ends == ENDS_MAX;
        if (full) break;
        if (!p->inside) {
            got = begin_document(p, e);
            if (got > 0) note_begin(p, out);
        } else if (p->n) {
            take(p, out);
        } else {
            got = source_read(p->source, &p->text, &p->n, e);
            if (got != 0) continue;
            end_stretch(p, out, true);
            got = 1;
        }
    }
    if (got < 0) return got;
    close_part(p, out);
    return out->n || out->n_ends;
}

static int no_place(struct err *e)
{
    return err_set(e, ERR_REQUEST, "the inputs have fewer documents than when they were read before");
}

static int stop(const atomic_int *give_up, struct err *e)
{
    return give_up && atomic_load(give_up) ? err_set(e, ERR_SIGNAL, "stopped while texts were read again") : OK;
}

/* The first bytes of the document, which were encoded before, go by. */
static int pass_bytes(struct parts *p, int64_t bytes, const atomic_int *give_up, struct err *e)
{
    while (bytes > 0) {
        int got = source_read(p->source, &p->text, &p->n, e);
        if (got > 0 && stop(give_up, e)) return ERR_SIGNAL;
        if (got <= 0) return got ? got : no_place(e);
        size_t n = (int64_t)p->n < bytes ? p->n : (size_t)bytes;
        p->text += n;
        p->n -= n;
        bytes -= (int64_t)n;
    }
    return OK;
}

int parts_seek(struct parts *p, const struct parts_place *to, const atomic_int *give_up, struct err *e)
{
    if (to->file < 0) return OK;
    if (!source_go_to_file(p->source, to->file)) return no_place(e);
    for (int64_t i = 0; i < to->document + (to->byte > 0); i++) {
        if (stop(give_up, e)) return ERR_SIGNAL;
        int got = begin_document(p, e);
        if (got <= 0) return got ? got : no_place(e);
        if (p->at.file != to->file) return no_place(e);
    }
    int code = pass_bytes(p, to->byte, give_up, e);
    p->at = *to;
    p->inside = to->byte > 0;
    p->stretch = 0;
    return code;
}
