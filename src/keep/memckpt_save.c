/* SPDX-License-Identifier: Apache-2.0 */
/* A memory checkpoint is written like one on disk, but for what hosts must tell each other where there is no file
 * system in common: every host gets the lists of all ranks, so each writes the same manifest, and the number of the
 * publication is the largest that any of them would give. What a rank wrote is read back in pieces and sent on: pages
 * of memory, so twice the rate of a copy; nothing is synced that is not on a disk. Rejected: sending the arrays
 * themselves (the partner would have to know their boxes and checksums before it can write a file). */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/memckpt_impl.h"

#define PIECE ((int64_t)4 << 20)
enum { AT_ONCE = 32 }; /* messages of one exchange */

/* ---- to the partner ---- */
struct inbox { /* what one rank sends here */
    int from;
    struct fs_writer *w;
    unsigned char *piece;
};

struct sending {
    struct memckpt *m;
    int64_t *bytes; /* [n] of each rank's file; 0: it wrote none */
    struct fs_file file;
    unsigned char *piece;
    struct inbox *in;
    int n_in;
};

static int open_inbox(struct sending *s, const int64_t *told, int64_t step, struct err *e)
{
    int rc = OK;
    for (int r = 0; r < s->m->n; r++) {
        if (s->m->partner[r] != s->m->rank || !s->bytes[r]) continue;
        struct inbox *x = &s->in[s->n_in++];
        *x = (struct inbox){.from = r, .piece = xmalloc(to_size(PIECE))};
        char *path = ckpt_boxes_path(s->m->root, step, to_int(told[s->m->n + r]));
        if (!rc) rc = fs_writer_open(&x->w, path, e);
        xfree(path);
    }
    return rc;
}

static int64_t piece_of(int64_t bytes, int64_t at) { return bytes - at < PIECE ? bytes - at : PIECE; }

static void exchange(struct sending *s, int64_t at)
{
    struct memckpt *m = s->m;
    struct comm_p2p list[AT_ONCE];
    int n = 0;
    int64_t first = 0, last = 0;
    if (m->partner[m->rank] >= 0 && at < s->bytes[m->rank])
        list[n++] = (struct comm_p2p){true, m->partner[m->rank], s->piece, piece_of(s->bytes[m->rank], at), DT_U8};
    for (int i = 0; i < s->n_in; i++) {
        if (n == AT_ONCE) {
            last = comm_exchange(m->world, list, n, "checkpoint for a partner");
            first = first ? first : last;
            n = 0;
        }
        int64_t all = s->bytes[s->in[i].from];
        if (at < all) list[n++] = (struct comm_p2p){false, s->in[i].from, s->in[i].piece, piece_of(all, at), DT_U8};
    }
    if (n) last = comm_exchange(m->world, list, n, "checkpoint for a partner");
    for (int64_t t = first ? first : last; t && t <= last; t++) comm_wait(m->world, t);
}

/* told: [n] bytes of each rank's file, then [n] which writer it is. Messages go on after a file has failed: the other
 * end waits for them. */
static int carry(struct sending *s, struct err *e)
{
    struct memckpt *m = s->m;
    int64_t most = 0, mine = s->bytes[m->rank];
    int rc = OK;
    for (int r = 0; r < m->n; r++) most = s->bytes[r] > most ? s->bytes[r] : most;
    for (int64_t at = 0; at < most && !comm_status(m->world, NULL); at += PIECE) {
        if (!rc && at < mine) rc = fs_file_read(&s->file, at, to_size(piece_of(mine, at)), s->piece, e);
        exchange(s, at);
        for (int i = 0; i < s->n_in; i++) {
            int64_t all = s->bytes[s->in[i].from];
            if (!rc && s->in[i].w && at < all)
                rc = fs_writer_write(s->in[i].w, s->in[i].piece, to_size(piece_of(all, at)), e);
        }
    }
    int status = comm_status(m->world, rc ? NULL : e);
    return rc ? rc : status;
}

static int tell_sizes(struct memckpt *m, const struct ranks *r, int64_t bytes, int64_t *told, struct err *e)
{
    int64_t mine[2] = {bytes, r->writes ? r->writer : -1}, *pairs = xcalloc(2 * to_size(m->n), sizeof *pairs);
    comm_wait(m->world, comm_all_gather(m->world, mine, pairs, 2, DT_I64, "sizes of checkpoint files"));
    for (int i = 0; i < m->n; i++) {
        told[i] = pairs[2 * i];
        told[m->n + i] = pairs[2 * i + 1];
    }
    xfree(pairs);
    return comm_status(m->world, e);
}

int memckpt_send(struct memckpt *m, int64_t step, const struct ranks *r, struct err *e)
{
    struct sending s = {.m = m, .file = {.fd = -1}};
    if (!m->world || m->n_hosts < 2) return OK;
    int64_t *told = xcalloc(2 * to_size(m->n), sizeof *told);
    int rc = OK;
    if (r->writes) {
        char *path = ckpt_boxes_path(m->root, step, r->writer);
        rc = fs_file_open(&s.file, path, e);
        xfree(path);
    }
    int told_rc = tell_sizes(m, r, !rc && r->writes ? s.file.bytes : 0, told, rc ? NULL : e);
    s.bytes = told;
    s.piece = xmalloc(to_size(PIECE));
    s.in = xcalloc(to_size(m->n), sizeof *s.in);
    if (!told_rc) {
        int opened = open_inbox(&s, told, step, rc ? NULL : e);
        rc = rc ? rc : opened;
        int carried = carry(&s, rc ? NULL : e);
        rc = rc ? rc : carried;
    }
    for (int i = 0; i < s.n_in; i++) {
        int closed = s.in[i].w ? fs_writer_close(s.in[i].w, false, rc ? NULL : e) : OK;
        rc = rc ? rc : closed;
        xfree(s.in[i].piece);
    }
    fs_file_close(&s.file);
    xfree(s.in);
    xfree(s.piece);
    xfree(told);
    return rc ? rc : told_rc;
}

/* ---- every host knows what all have written ---- */
/* The text of this rank's list to all; those of all to the host's directory. */
static int share_lists(struct memckpt *m, int64_t step, const struct ranks *r, struct err *e)
{
    char *path = ckpt_list_path(m->root, step, r->writes ? r->writer : 0), *text = NULL;
    size_t n = 0;
    int rc = r->writes ? fs_read_all(path, (size_t)1 << 30, &text, &n, e) : OK;
    int64_t *told = xcalloc(2 * to_size(m->n), sizeof *told), *counts = told;
    int status = tell_sizes(m, r, rc ? 0 : (int64_t)n, told, rc ? NULL : e);
    int64_t all = 0, at = 0;
    for (int i = 0; i < m->n; i++) all += counts[i];
    char *texts = xmalloc(to_size(all) + 1);
    if (!status)
        comm_wait(m->world, comm_all_gather_v(m->world, text, texts, counts, DT_U8, "lists of a checkpoint's boxes"));
    if (!status) status = comm_status(m->world, rc ? NULL : e);
    for (int i = 0; !rc && !status && m->leads && i < m->n; i++) {
        char *to = ckpt_list_path(m->root, step, told[m->n + i] >= 0 ? to_int(told[m->n + i]) : 0);
        if (counts[i]) rc = fs_write_atomic(to, texts + at, to_size(counts[i]), e);
        at += counts[i];
        xfree(to);
    }
    xfree(texts);
    xfree(text);
    xfree(told);
    xfree(path);
    return rc ? rc : status;
}

static int next_publication(struct memckpt *m, int64_t *publication, struct err *e)
{
    struct ckpt_listing *list;
    int n = 0;
    *publication = 1;
    int rc = ckpt_list(m->root, &list, &n, e);
    for (int i = 0; !rc && i < n; i++)
        if (list[i].publication >= *publication) *publication = list[i].publication + 1;
    if (!rc) ckpt_list_free(list, n);
    rc = memckpt_together(m, rc, e);
    if (rc || !m->world) return rc;
    comm_wait(m->world, comm_all_reduce(m->world, publication, publication, 1, DT_I64, COMM_MAX, "publication"));
    return comm_status(m->world, e);
}

/* ---- one step ---- */
static int write_all(struct memckpt *m, const struct engine *g, const struct ranks *r, struct ckpt_info *info,
                     struct err *e)
{
    struct ckpt_tensor *t;
    int64_t n = save_describe(g, NULL, &t);
    int rc = m->leads ? memckpt_own(m, e) : OK; /* a person may have removed them */
    if (!rc && m->leads) rc = ckpt_save_begin(m->root, info->step, e);
    rc = memckpt_together(m, rc, e);
    if (!rc) rc = memckpt_together(m, r->writes ? ckpt_save_rank(m->root, info->step, r->writer, t, n, e) : OK, e);
    save_forget(t, n);
    if (!rc) rc = memckpt_together(m, memckpt_send(m, info->step, r, e), e);
    if (!rc && m->world) rc = memckpt_together(m, share_lists(m, info->step, r, e), e);
    if (!rc) rc = next_publication(m, &info->publication, e);
    if (!rc) rc = memckpt_together(m, m->leads ? ckpt_save_publish(m->root, r->n_writers, info, e) : OK, e);
    return rc;
}

/* All but the newest: only once it is there on every host. */
static void remove_older(const struct memckpt *m, int64_t step)
{
    char **names, keep[40];
    int n;
    struct err why = {0};
    snprintf(keep, sizeof keep, "step-%08lld", (long long)step);
    int rc = fs_list(m->root, &names, &n, &why);
    for (int i = 0; !rc && i < n; i++) {
        char *path = fs_join(m->root, names[i]);
        if (strcmp(names[i], keep) && strcmp(names[i], "latest")) rc = fs_remove_tree(path, &why);
        xfree(path);
    }
    if (n) fs_list_free(names, n);
    if (rc) log_warn("checkpoints in memory: %s", why.text);
}

int memckpt_save(struct memckpt *m, const struct engine *g, const struct ranks *r, const struct save_info *s,
                 struct err *e)
{
    struct save_info bare = *s; /* the tokenizer is in run.dir */
    struct save_words w;
    bare.tokenizer_dir = NULL;
    save_words_make(&w, g, &bare);
    w.file[w.info.n_attachments++] = (struct ckpt_attachment){.name = MEMCKPT_RUN, .p = m->id, .bytes = strlen(m->id)};
    w.info.keep = 0;
    w.info.parted = true;
    int rc = save_is_worth(g, r, s->step, e);
    if (!rc) {
        rc = write_all(m, g, r, &w.info, e);
        if (rc && m->leads) ckpt_save_abort(m->root, s->step, 0, NULL);
        if (!rc && m->leads) remove_older(m, s->step);
    }
    if (!rc) m->told = w.told;
    save_words_free(&w);
    m->failed = rc ? m->failed + 1 : 0;
    if (!rc) m->saved = s->step;
    return rc;
}
