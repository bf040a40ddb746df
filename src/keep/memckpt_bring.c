/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a checkpoint in memory from host to host. What is read by one rank and sent on needs none of it
 * (engine/readers.h); arrays that wait in another memory are read by each rank for itself, and a host that lost its
 * memory has no file to read them from. Only what is needed travels, each file from the lowest rank that has it whole
 * to the lowest one of the host, in pieces; what came is compared with its checksums where it is read. Rejected:
 * reading such arrays like the others, which would need room for them beside where they wait. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "keep/memckpt_impl.h"

#define PIECE ((int64_t)4 << 20)

static int leader_of(const struct memckpt *m, int host)
{
    int r = 0;
    while (m->host_of[r] != host) r++;
    return r;
}

/* The lowest rank that can read it. */
static int who_has(const struct memckpt *m, const struct ckpt *c, int file)
{
    int r = 0;
    while (r < m->n && !ckpt_file_seen(c, file, r)) r++;
    return r;
}

/* A failure is this rank's alone; messages go on after it, since the other end waits for them. */
static int carry(const struct memckpt *m, const struct ckpt *c, int file, int from, int to, struct err *e)
{
    struct fs_file in = {.fd = -1};
    struct fs_writer *out = NULL;
    if (m->rank != from && m->rank != to) return OK;
    char *path = fs_join(ckpt_path(c), ckpt_file_name(c, file));
    int64_t bytes = ckpt_file_bytes(c, file);
    int rc = m->rank == from ? fs_file_open(&in, path, e) : fs_writer_open(&out, path, e);
    unsigned char *piece = xcalloc(1, to_size(PIECE));
    for (int64_t at = 0; at < bytes && !comm_status(m->world, NULL); at += PIECE) {
        int64_t n = bytes - at < PIECE ? bytes - at : PIECE;
        bool sends = m->rank == from;
        if (sends && !rc) rc = fs_file_read(&in, at, to_size(n), piece, e);
        struct comm_p2p one = {sends, sends ? to : from, piece, n, DT_U8};
        comm_wait(m->world, comm_exchange(m->world, &one, 1, "file of a checkpoint"));
        if (!sends && !rc) rc = fs_writer_write(out, piece, to_size(n), e);
    }
    int closed = out ? fs_writer_close(out, false, rc ? NULL : e) : OK;
    fs_file_close(&in);
    xfree(piece);
    xfree(path);
    return rc ? rc : closed;
}

/* all: [n][files]. */
static bool is_needed(const struct memckpt *m, const uint8_t *all, int files, int file, int host)
{
    bool yes = false;
    for (int r = 0; r < m->n; r++) yes |= m->host_of[r] == host && all[(size_t)r * (size_t)files + (size_t)file];
    return yes;
}

static int open_again(struct memckpt *m, struct ckpt **c, const uint8_t *sees, struct err *e)
{
    char *dir = xstrdup(ckpt_path(*c));
    ckpt_close(*c);
    *c = NULL;
    int rc = memckpt_together(m, ckpt_open_parted(c, dir, e), e);
    if (!rc) ckpt_seen_by(*c, sees, m->n);
    xfree(dir);
    return rc;
}

int memckpt_bring(struct memckpt *m, struct ckpt **c, const uint8_t *needs, struct err *e)
{
    if (!m->world || m->n_hosts < 2) return OK;
    int files = ckpt_n_files(*c), rc = OK, brought = 0;
    uint8_t *all = xcalloc(to_size(files) * to_size(m->n) + 1, 1),
            *sees = xcalloc(to_size(files) * to_size(m->n) + 1, 1);
    comm_wait(m->world, comm_all_gather(m->world, needs, all, files, DT_U8, "files that are needed"));
    for (int f = 0; f < files; f++)
        for (int r = 0; r < m->n; r++) sees[(size_t)f * (size_t)m->n + (size_t)r] = ckpt_file_seen(*c, f, r);
    for (int f = 0; f < files && !rc; f++)
        for (int host = 0; host < m->n_hosts && !rc; host++) {
            int to = leader_of(m, host), from = who_has(m, *c, f);
            if (ckpt_file_seen(*c, f, to) || from == m->n || !is_needed(m, all, files, f, host)) continue;
            rc = memckpt_together(m, carry(m, *c, f, from, to, e), e);
            for (int r = 0; r < m->n && !rc; r++)
                if (m->host_of[r] == host) sees[(size_t)f * (size_t)m->n + (size_t)r] = 1;
            brought++;
        }
    if (!rc) rc = comm_status(m->world, e);
    if (!rc && brought) rc = open_again(m, c, sees, e);
    if (rc) {
        ckpt_close(*c);
        *c = NULL;
    }
    xfree(sees);
    xfree(all);
    return rc;
}
