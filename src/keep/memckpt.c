/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a run in memory: their names, whose they are, who is whose partner. */
#include "keep/memckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/memckpt_impl.h"
#include "keep/run_name.h"

#define LOCK_S 10.0
#define TMPFS 0x01021994L
#define RAMFS 0x858458f6L

/* ---- who is whose partner ---- */
void memckpt_partners(const int *host_of, int n, int *partner)
{
    int n_hosts = 0;
    for (int r = 0; r < n; r++)
        if (host_of[r] >= n_hosts) n_hosts = host_of[r] + 1;
    for (int r = 0; r < n; r++) {
        int place = 0, there = 0, at = 0, next = n_hosts ? (host_of[r] + 1) % n_hosts : 0;
        for (int k = 0; k < r; k++) place += host_of[k] == host_of[r];
        for (int k = 0; k < n; k++) there += host_of[k] == next;
        partner[r] = -1;
        if (n_hosts < 2 || !there) continue;
        for (int k = 0; k < n; k++)
            if (host_of[k] == next && at++ == place % there) partner[r] = k;
    }
}

int64_t memckpt_bytes(int64_t saved_bytes, int n_hosts) { return saved_bytes * 2 * (n_hosts > 1 ? 2 : 1); }

static void find_hosts(struct memckpt *m, const struct config *c)
{
    int64_t here = c->comm.ranks_per_host;
    m->pretended = here > 0;
    m->host_of = xcalloc(to_size(m->n), sizeof *m->host_of);
    m->partner = xcalloc(to_size(m->n), sizeof *m->partner);
    for (int r = 0; r < m->n; r++) {
        m->host_of[r] = m->pretended ? to_int(r / here) : m->world ? comm_host(m->world, r) : 0;
        if (m->host_of[r] >= m->n_hosts) m->n_hosts = m->host_of[r] + 1;
    }
    m->host = m->host_of[m->rank];
    m->leads = true;
    for (int r = 0; r < m->rank; r++) m->leads &= m->host_of[r] != m->host;
    memckpt_partners(m->host_of, m->n, m->partner);
}

/* ---- which run ---- */
static char *id_path(const char *run_dir) { return fs_join(run_dir, "id"); }

/* Rank 0: run.dir/id. */
static int read_id(const char *run_dir, bool anew, uint64_t *id, struct err *e)
{
    char *path = id_path(run_dir);
    enum held held = anew ? HELD_NONE : digits_read(path, "this run's checkpoints in memory", id, e);
    int rc = held == HELD_UNKNOWN ? (int)e->code : held == HELD_NONE ? digits_draw(path, id, e) : OK;
    xfree(path);
    return rc;
}

/* The directory above, as the system knows it: a path says less where containers share memory and not their folders.
 * 0: unknown. */
static uint64_t place_of(const char *real)
{
    struct statx s;
    char *above = fs_join(real, "..");
    int failed = statx(AT_FDCWD, above, 0, STATX_INO | STATX_BTIME, &s);
    xfree(above);
    if (failed) return 0;
    uint64_t words[4] = {(uint64_t)s.stx_dev_major << 32 | s.stx_dev_minor, s.stx_ino};
    if (s.stx_mask & STATX_BTIME) {
        words[2] = (uint64_t)s.stx_btime.tv_sec;
        words[3] = s.stx_btime.tv_nsec;
    }
    return hash64(words, sizeof words);
}

enum { ID, PATH, PLACE, N_WORDS };

static int share_id(struct memckpt *m, const char *run_dir, bool anew, uint64_t words[N_WORDS], struct err *e)
{
    int rc = m->rank == 0 ? read_id(run_dir, anew, &words[ID], e) : OK;
    char *real = m->rank == 0 ? realpath(run_dir, NULL) : NULL;
    if (m->rank == 0) words[PATH] = hash64(real ? real : run_dir, strlen(real ? real : run_dir));
    if (m->rank == 0) words[PLACE] = place_of(real ? real : run_dir);
    free(real);
    if (!m->world) return rc;
    rc = comm_agree(m->world, rc, e);
    if (rc) return rc;
    comm_wait(m->world, comm_broadcast(m->world, words, N_WORDS, DT_I64, 0, "which run this is"));
    return comm_status(m->world, e);
}

/* ---- directories ---- */
/* Nobody else may have put this directory here, nor write to it. */
static int is_ours(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st)) return err_errno(e, ERR_IO, errno, "%s: cannot be looked at", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_REQUEST, "%s: is not a directory; remove it, or choose another checkpoint.memory_dir",
                       path);
    if (st.st_uid != geteuid())
        return err_set(e, ERR_REQUEST,
                       "%s: belongs to user %u, and this run is user %u's: it is not touched; choose another "
                       "checkpoint.memory_dir",
                       path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return err_set(e, ERR_REQUEST,
                       "%s: others may read or change it (mode %03o): it is not touched; chmod 700, or remove it", path,
                       (unsigned)st.st_mode & 0777);
    return OK;
}

static int own_dir(const char *path, struct err *e)
{
    if (mkdir(path, 0700) && errno != EEXIST)
        return err_errno(e, ERR_REQUEST, errno, "%s: cannot be made (checkpoint.memory_dir)", path);
    return is_ours(path, e);
}

#define PLACE_FILE "place"

static int write_place(const char *dir, uint64_t place, struct err *e)
{
    char text[40], *path = fs_join(dir, PLACE_FILE);
    int n = snprintf(text, sizeof text, "%016" PRIx64 "\n", place), rc = fs_write_atomic(path, text, to_size(n), e);
    xfree(path);
    return rc;
}

/* Whether that run's directory lay where this one's does. */
static bool same_place(const char *dir, uint64_t place)
{
    char want[40], *path = fs_join(dir, PLACE_FILE), *text = NULL;
    size_t n;
    snprintf(want, sizeof want, "%016" PRIx64 "\n", place);
    bool same = place && fs_read_all(path, sizeof want, &text, &n, NULL) == OK && !strcmp(text, want);
    xfree(text);
    xfree(path);
    return same;
}

/* A run that was here before under the same run.dir, whose files it lost: nobody will ask for its memory again. This
 * one has run.dir's lock. One that is used, or whose run.dir is another under the same path, stays. */
static void remove_earlier(const char *above, const char *mine, const char *prefix, uint64_t place)
{
    char **names;
    int n;
    struct err why;
    if (fs_list(above, &names, &n, &why)) return;
    for (int i = 0; i < n; i++) {
        if (!str_starts(names[i], prefix) || !strcmp(names[i], mine)) continue;
        char *path = fs_join(above, names[i]);
        char *lock = fs_join(path, "lock");
        struct fs_lock held = {.fd = -1};
        int rc = is_ours(path, &why);
        if (!rc) rc = fs_lock_take(&held, lock, &why); /* containers may share memory and not their folders */
        bool goes = !rc && same_place(path, place);
        if (goes) log_warn("%s is of an earlier run in this run.dir: removed", path);
        if (goes) rc = fs_remove_tree(path, &why);
        if (!rc && !goes)
            log_warn("%s is of a run in another directory of the same path, such as another container's: it stays; if "
                     "nobody goes on with that run, remove it",
                     path);
        if (rc) log_warn("memory of an earlier run: %s", why.text);
        fs_lock_release(&held);
        xfree(lock);
        xfree(path);
    }
    fs_list_free(names, n);
}

static void check_kind(const char *dir)
{
    struct statfs fs;
    if (!statfs(dir, &fs) && (long)fs.f_type != TMPFS && (long)fs.f_type != RAMFS)
        log_warn("checkpoint.memory_dir: %s does not lie in memory: every checkpoint.memory_every steps the run waits "
                 "for "
                 "a disk",
                 dir);
}

static void host_name(const struct memckpt *m, char out[80])
{
    char name[72] = "";
    if (m->pretended) snprintf(out, 80, "host-%d", m->host);
    else snprintf(out, 80, "%s", gethostname(name, sizeof name - 1) || !name[0] || name[0] == '.' ? "host" : name);
    for (char *c = out; *c; c++)
        if (*c == '/') *c = '_';
}

int memckpt_own(const struct memckpt *m, struct err *e)
{
    int rc = own_dir(m->dir, e);
    return rc ? rc : own_dir(m->root, e);
}

/* The run's directory is locked as long as it is in use, by one process of each host that has it. One of the job before
 * this one may still be about to end. */
static int take_lock(struct memckpt *m, struct err *e)
{
    char *path = fs_join(m->dir, "lock");
    double from = clock_now_s();
    int rc = OK;
    if (m->rank == 0 || !m->pretended)
        while ((rc = fs_lock_take(&m->lock, path, e)) && m->lock.busy && clock_now_s() - from < LOCK_S)
            clock_sleep_s(0.05);
    xfree(path);
    return rc && m->lock.busy ? (int)(e->code = ERR_IO) : rc; /* nothing is wrong with the request: later it is free */
}

static int make_dirs(struct memckpt *m, const struct config *c, const uint64_t id[N_WORDS], struct err *e)
{
    char prefix[64], name[96], host[80];
    snprintf(prefix, sizeof prefix, "tutti-%u-%016" PRIx64 "-", (unsigned)geteuid(), id[PATH]);
    snprintf(name, sizeof name, "%s%016" PRIx64, prefix, id[ID]);
    host_name(m, host);
    snprintf(m->id, sizeof m->id, "%016" PRIx64, id[ID]);
    m->dir = fs_join(c->checkpoint.memory_dir, name);
    m->root = fs_join(m->dir, host);
    if (!m->leads) return OK;
    if (!fs_is_dir(c->checkpoint.memory_dir))
        return err_set(e, ERR_REQUEST,
                       "checkpoint.memory_dir: %s is not a directory of this host; choose one in memory",
                       c->checkpoint.memory_dir);
    int rc = memckpt_own(m, e);
    if (!rc) rc = take_lock(m, e);
    if (!rc) rc = ckpt_recover(m->root, e);
    if (!rc && (m->rank == 0 || !m->pretended)) {
        check_kind(m->root);
        remove_earlier(c->checkpoint.memory_dir, name, prefix, id[PLACE]);
        rc = write_place(m->dir, id[PLACE], e);
    }
    return rc;
}

/* Where the run's memory was at its last start: run.dir/memory_dir. */
#define DIR_FILE "memory_dir"

static void say_left(const char *dir, const char *name, const char *why)
{
    char *left = fs_join(dir, name);
    struct err unknown;
    enum held held = held_path(left, &unknown);
    if (held == HELD_KNOWN)
        log_warn("%s has checkpoints in memory of this run, which are not looked at, since %s; whoever does not want "
                 "them removes the folder",
                 left, why);
    if (held == HELD_UNKNOWN)
        log_warn("whether there are checkpoints of this run in memory, which are not looked at, since %s, is unknown: "
                 "%s",
                 why, unknown.text);
    xfree(left);
}

/* *dir: HELD_KNOWN; xfree it. */
static enum held earlier_dir(const char *run_dir, char **dir, struct err *why)
{
    char *path = fs_join(run_dir, DIR_FILE);
    size_t n = 0;
    *dir = NULL;
    enum held held = held_path(path, why);
    if (held == HELD_KNOWN && fs_read_all(path, PATH_MAX, dir, &n, why)) held = HELD_UNKNOWN;
    if (held == HELD_KNOWN && n && (*dir)[n - 1] == '\n') (*dir)[n - 1] = 0;
    xfree(path);
    return held;
}

/* Rank 0. Another checkpoint.memory_dir than at the last start: what lies in that one may be newer than what is on
 * disk. */
static int note_dir(const struct memckpt *m, const struct config *c, struct err *e)
{
    char *earlier, *path = fs_join(c->run.dir, DIR_FILE), *real = realpath(c->checkpoint.memory_dir, NULL);
    struct str line = {0};
    int rc = earlier_dir(c->run.dir, &earlier, e) == HELD_UNKNOWN ? (int)e->code : OK;
    if (!rc && real && (!earlier || strcmp(earlier, real) != 0)) {
        if (earlier)
            say_left(earlier, strrchr(m->dir, '/') + 1,
                     "checkpoint.memory_dir is another one now: with that one the run goes on from the newest of them");
        str_printf(&line, "%s\n", real);
        rc = fs_write_atomic(path, line.p, line.n, e);
    }
    str_free(&line);
    free(real);
    xfree(earlier);
    xfree(path);
    return rc;
}

int memckpt_open(struct memckpt *m, const struct config *c, struct comm *world, bool anew, struct err *e)
{
    uint64_t id[N_WORDS] = {0};
    *m = (struct memckpt){.world = world, .n = 1, .saved = -1, .lock = {.fd = -1}};
    if (world) {
        m->rank = comm_rank(world);
        m->n = comm_size(world);
    }
    find_hosts(m, c);
    int rc = share_id(m, c->run.dir, anew, id, e);
    if (!rc) rc = make_dirs(m, c, id, e);
    if (!rc && m->rank == 0) rc = note_dir(m, c, e);
    return memckpt_together(m, rc, e);
}

void memckpt_say_unused(const struct config *c)
{
    char name[96], *path = id_path(c->run.dir), *real = realpath(c->run.dir, NULL), *earlier = NULL;
    struct err why;
    uint64_t id;
    enum held held = digits_read(path, "this run's checkpoints in memory", &id, &why);
    if (held == HELD_KNOWN && earlier_dir(c->run.dir, &earlier, &why) == HELD_UNKNOWN) held = HELD_UNKNOWN;
    if (held == HELD_UNKNOWN)
        log_warn("whether this run left checkpoints in memory (checkpoint.memory_every is 0: none is looked at) is "
                 "unknown: %s",
                 why.text);
    if (real && held == HELD_KNOWN) {
        snprintf(name, sizeof name, "tutti-%u-%016" PRIx64 "-%016" PRIx64, (unsigned)geteuid(),
                 hash64(real, strlen(real)), id);
        say_left(earlier ? earlier : c->checkpoint.memory_dir, name,
                 "checkpoint.memory_every is 0: with checkpoint.memory_every=1 (and the same checkpoint.memory_dir) "
                 "the "
                 "run goes on from the newest of them");
    }
    free(real);
    xfree(earlier);
    xfree(path);
}

int memckpt_together(struct memckpt *m, int rc, struct err *e) { return m->world ? comm_agree(m->world, rc, e) : rc; }

void memckpt_close(struct memckpt *m)
{
    if (m->root) fs_lock_release(&m->lock);
    xfree(m->dir);
    xfree(m->root);
    xfree(m->host_of);
    xfree(m->partner);
    *m = (struct memckpt){.saved = -1, .lock = {.fd = -1}};
}

/* The run's directory goes with the last of its hosts. */
void memckpt_drop(struct memckpt *m)
{
    struct err why;
    m->saved = -1;
    if (!m->leads || !m->root) return;
    if (fs_remove_tree(m->root, &why)) log_warn("checkpoints in memory: %s", why.text);
    if (m->lock.fd >= 0) {
        static const char *const files[] = {"lock", PLACE_FILE};
        for (int i = 0; i < 2; i++) {
            char *path = fs_join(m->dir, files[i]);
            unlink(path);
            xfree(path);
        }
    }
    rmdir(m->dir);
}
