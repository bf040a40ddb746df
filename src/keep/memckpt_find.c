/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoint in memory is the newest that is whole. Each host says which it has part of and, of one that all look
 * at, which files; a table of who can read what comes of it, the same on every rank, by which the readings are dealt
 * (engine/readers.c). A host that has nothing (it is new, or lost its memory) gets the manifest and what is attached.
 * What is damaged is as good as lost, and what is left is gone on from; what could not be looked at is not: it may be
 * the newest, so all ranks stop, unless what cannot be read on one host is whole on another.
 * Cost: some hundred bytes per host, a byte per file and rank, and the manifest once where it is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/memckpt_impl.h"

enum { SLOTS = 4 };    /* what a host says of: two are there at most, but for what a person put there */
enum { ATTACHED = 2 }; /* the config and the run's ID (memckpt_save) */
#define MANIFEST "manifest.json"
#define SMALL ((size_t)1 << 30)

struct slot { /* as it travels */
    int64_t step, publication, hash, n_files;
};

/* ---- what there is ---- */
static int later_first(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    if (x->publication != y->publication) return x->publication > y->publication ? -1 : 1;
    return (x->hash < y->hash) - (x->hash > y->hash);
}

static char *slot_dir(const struct memckpt *m, int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    return fs_join(m->root, name);
}

/* Of this host; a directory that is damaged is said and passed over. */
static int look(const struct memckpt *m, struct slot out[SLOTS], struct err *e)
{
    struct ckpt_listing *list;
    int n = 0, k = 0;
    memset(out, 0, SLOTS * sizeof *out);
    if (!m->leads) return OK;
    int rc = ckpt_list(m->root, &list, &n, e);
    for (int i = n - 1; i >= 0 && k < SLOTS && !rc; i--) {
        struct ckpt *c;
        rc = ckpt_open_parted(&c, list[i].path, e);
        if (rc == ERR_CORRUPT) {
            log_warn("the checkpoint in memory %s is not used: %s", list[i].path, e->text);
            rc = OK;
        } else if (!rc) {
            out[k++] = (struct slot){ckpt_step(c), ckpt_publication(c), (int64_t)ckpt_hash(c), ckpt_n_files(c)};
            ckpt_close(c);
        }
    }
    ckpt_list_free(list, n);
    return rc;
}

/* Of all hosts, the latest publication first, each once. */
static int gather(struct memckpt *m, struct slot **out, int *n, struct err *e)
{
    struct slot mine[SLOTS], *all = xcalloc(to_size(m->n) * SLOTS, sizeof *all);
    int rc = memckpt_together(m, look(m, mine, e), e);
    if (!rc && m->world)
        comm_wait(m->world, comm_all_gather(m->world, mine, all, SLOTS * sizeof *mine / sizeof(int64_t), DT_I64,
                                            "checkpoints in memory"));
    else memcpy(all, mine, sizeof mine);
    if (!rc && m->world) rc = comm_status(m->world, e);
    qsort(all, to_size(m->n) * SLOTS, sizeof *all, later_first);
    *n = 0;
    for (int i = 0; i < m->n * SLOTS; i++)
        if (all[i].publication > 0 && (!*n || memcmp(&all[i], &all[*n - 1], sizeof *all))) all[(*n)++] = all[i];
    *out = all;
    return rc;
}

/* ---- one of them ---- */
static bool is_it(const struct ckpt *c, const struct slot *s)
{
    return ckpt_step(c) == s->step && ckpt_publication(c) == s->publication && (int64_t)ckpt_hash(c) == s->hash;
}

/* What this rank finds below its root, of each file an enum held. The ranks of a host read its files in turns and
 * compare every byte, before anybody loads any of them: a copy that is damaged is not there. */
static void look_closely(const struct memckpt *m, struct ckpt *c, uint8_t *here)
{
    int place = 0, ranks = 0;
    for (int r = 0; r < m->n; r++) {
        place += r < m->rank && m->host_of[r] == m->host;
        ranks += m->host_of[r] == m->host;
    }
    for (int f = 0; f < ckpt_n_files(c); f++) {
        struct err why;
        here[f] = (uint8_t)ckpt_file_here(c, f, &why);
        int rc = here[f] == HELD_KNOWN && f % ranks == place ? ckpt_verify_file(c, f, &why) : OK;
        if (rc) here[f] = rc == ERR_CORRUPT ? HELD_NONE : HELD_UNKNOWN;
        if (rc || here[f] == HELD_UNKNOWN) log_warn("a checkpoint in memory: %s", why.text);
    }
}

/* sees[file * n + rank]: of all. What one rank of a host found damaged is so for all of them. unknown[file]: somebody
 * could not look. */
static int who_sees(struct memckpt *m, const struct slot *s, uint8_t *sees, uint8_t *unknown, struct err *e)
{
    size_t files = to_size(s->n_files), n = to_size(m->n);
    uint8_t *mine = xcalloc(files + 1, 1), *all = xcalloc(files * n + 1, 1);
    char *dir = slot_dir(m, s->step);
    struct ckpt *c = NULL;
    struct err why;
    int rc = ckpt_open_parted(&c, dir, &why); /* it is not there, where the host has none of it: that is damage, too */
    memset(mine, !rc || rc == ERR_CORRUPT ? HELD_NONE : HELD_UNKNOWN, files);
    if (rc && rc != ERR_CORRUPT) log_warn("a checkpoint in memory: %s", why.text);
    if (!rc && is_it(c, s)) look_closely(m, c, mine);
    ckpt_close(c);
    xfree(dir);
    if (m->world) comm_wait(m->world, comm_all_gather(m->world, mine, all, s->n_files, DT_U8, "files in memory"));
    else memcpy(all, mine, files);
    for (size_t f = 0; f < files; f++)
        for (size_t r = 0; r < n; r++) {
            sees[f * n + r] = 1;
            for (size_t k = 0; k < n; k++)
                if (m->host_of[k] == m->host_of[r]) sees[f * n + r] &= all[k * files + f] == HELD_KNOWN;
            unknown[f] |= all[r * files + f] == HELD_UNKNOWN;
        }
    xfree(mine);
    xfree(all);
    return m->world ? comm_status(m->world, e) : OK;
}

/* Each file is on one host at least. The files of boxes are the first ones of a manifest, in the writers' order; then
 * comes what is attached. */
static int all_there(const struct memckpt *m, const struct slot *s, const uint8_t *sees, const uint8_t *unknown,
                     struct err *e)
{
    for (int64_t f = 0; f < s->n_files; f++) {
        bool any = false;
        char name[64] = "attached";
        if (f < s->n_files - ATTACHED) snprintf(name, sizeof name, "boxes-%05lld.safetensors", (long long)f);
        for (int r = 0; r < m->n; r++) any |= sees[f * m->n + r] != 0;
        if (!any && unknown[f])
            return err_set(e, ERR_IO,
                           "file %lld of %lld (%s) could not be read where it is in memory, and is whole nowhere else",
                           (long long)f + 1, (long long)s->n_files, name);
        if (!any)
            return err_set(e, ERR_CORRUPT,
                           "file %lld of %lld (%s) is whole in the memory of none of %d host%s: it was lost or damaged "
                           "there and at its partner",
                           (long long)f + 1, (long long)s->n_files, name, m->n_hosts, m->n_hosts > 1 ? "s" : "");
    }
    return OK;
}

/* ---- a host that has none of it ---- */
/* A small file from rank `from` to the hosts of those that lack it. */
static int bring(struct memckpt *m, int from, const char *dir, const char *name, bool lacks, struct err *e)
{
    char *path = fs_join(dir, name), *text = NULL;
    size_t n = 0;
    int rc = m->rank == from ? fs_read_all(path, SMALL, &text, &n, e) : OK;
    int64_t bytes = rc ? -1 : (int64_t)n;
    comm_wait(m->world, comm_broadcast(m->world, &bytes, 1, DT_I64, from, "bytes of a small file"));
    int status = comm_status(m->world, rc ? NULL : e);
    if (!rc && !status && bytes >= 0) {
        if (m->rank != from) text = xmalloc(to_size(bytes) + 1);
        comm_wait(m->world, comm_broadcast(m->world, text, bytes, DT_U8, from, name));
        status = comm_status(m->world, e);
        if (!status && lacks && m->leads) rc = fs_write_atomic(path, text, to_size(bytes), e);
    }
    xfree(text);
    xfree(path);
    return memckpt_together(m, rc ? rc : status, e);
}

/* Of what is there, that it may not be read, or is a newer tutti's, is not known to be less than the newest. */
static int unread(int rc, struct err *e)
{
    if (rc == ERR_REQUEST) e->code = ERR_IO;
    return rc == ERR_REQUEST ? ERR_IO : rc;
}

static int complete_hosts(struct memckpt *m, const struct slot *s, const char *dir, struct err *e)
{
    static const char *const small[ATTACHED + 1] = {"config.yaml", MEMCKPT_RUN,
                                                    MANIFEST}; /* the manifest last: it stands for all */
    struct ckpt *c = NULL;
    int rc = ckpt_open_parted(&c, dir, e);
    bool is = !rc && is_it(c, s), has = is && !(rc = ckpt_check_attachments(c, e));
    ckpt_close(c);
    if (rc == ERR_CORRUPT) rc = OK; /* lost, or damaged: another host has it */
    if ((rc = memckpt_together(m, rc, e))) return rc;
    if (!m->world) return has ? OK : err_set(e, ERR_CORRUPT, "%s: what is attached is damaged", dir);
    int64_t worst[2] = {m->leads && has ? m->rank : m->n, !has}; /* the lowest that has it; whether one lacks it */
    int64_t lowest = worst[0], lack = worst[1];
    comm_wait(m->world, comm_all_reduce(m->world, &lowest, &lowest, 1, DT_I64, COMM_MIN, "who has the manifest"));
    comm_wait(m->world, comm_all_reduce(m->world, &lack, &lack, 1, DT_I64, COMM_MAX, "who lacks it"));
    rc = comm_status(m->world, e);
    if (rc || !lack) return rc;
    if (lowest == m->n) return err_set(e, ERR_CORRUPT, "%s: what is attached is damaged on every host", dir);
    /* Of another publication, or its manifest is damaged: what it has is not this one's. Else only small files are
     * replaced: its boxes are counted on. */
    if (!is && m->leads) rc = fs_remove_tree(dir, e);
    if (!has && m->leads && !rc) rc = fs_mkdirs(dir, e);
    rc = memckpt_together(m, rc, e);
    for (int i = 0; !rc && i <= ATTACHED; i++) rc = bring(m, to_int(lowest), dir, small[i], !has, e);
    return rc;
}

static int open_here(struct memckpt *m, const struct slot *s, const char *dir, struct ckpt **c, struct err *e)
{
    char *text = NULL;
    size_t n;
    int rc = unread(ckpt_open_parted(c, dir, e), e);
    if (!rc && !is_it(*c, s)) rc = err_set(e, ERR_CORRUPT, "%s: is not what the other hosts have", dir);
    if (!rc) rc = unread(ckpt_attachment(*c, MEMCKPT_RUN, &text, &n, e), e);
    if (!rc && (!text || strcmp(text, m->id)))
        rc = err_set(e, ERR_REQUEST, "%s: is of run %.40s, and this is run %s", dir, text ? text : "?", m->id);
    xfree(text);
    return memckpt_together(m, rc, e);
}

/* Whole, and open on every rank: *c. Else why not. */
static int take(struct memckpt *m, const struct slot *s, struct ckpt **c, struct err *e)
{
    uint8_t *sees = xcalloc(to_size(s->n_files) * to_size(m->n) + 1, 1), *unknown = xcalloc(to_size(s->n_files) + 1, 1);
    char *dir = slot_dir(m, s->step);
    int rc = who_sees(m, s, sees, unknown, e);
    if (!rc) rc = all_there(m, s, sees, unknown, e); /* the same on all ranks */
    if (!rc) rc = unread(complete_hosts(m, s, dir, e), e);
    if (!rc) rc = open_here(m, s, dir, c, e);
    if (!rc) ckpt_seen_by(*c, sees, m->n);
    if (rc) {
        ckpt_close(*c);
        *c = NULL;
    }
    xfree(dir);
    xfree(unknown);
    xfree(sees);
    return rc;
}

int memckpt_find(struct memckpt *m, int64_t least, struct ckpt **c, struct str *refused, struct err *e)
{
    struct slot *all;
    int n;
    *c = NULL;
    int rc = gather(m, &all, &n, e);
    if (rc) err_prefix(e, "what is in memory may be newer than what is on disk, and could not be looked at");
    for (int i = 0; !rc && !*c && i < n; i++) {
        struct err why = {0};
        if (all[i].step < least) continue;
        int bad = take(m, &all[i], c, &why);
        rc = m->world ? comm_status(m->world, e) : OK;
        if (!bad) continue;
        if (!rc && bad != ERR_CORRUPT && bad != ERR_REQUEST) { /* nobody knows what it is */
            *e = why;
            rc = bad;
        }
        if (refused->n) str_puts(refused, "; ");
        str_printf(refused, "step %lld: %s", (long long)all[i].step, why.text);
    }
    xfree(all);
    return rc;
}
