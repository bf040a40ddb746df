/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a run in memory: their names, whose they are, who is whose partner. */
#include "run/memckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/memckpt_impl.h"

#define ID_DIGITS 16
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
static bool is_id(const char *s, size_t n)
{
    if (n && s[n - 1] == '\n') n--;
    return n == ID_DIGITS && strspn(s, "0123456789abcdef") >= ID_DIGITS;
}

static int draw(const char *path, char id[ID_DIGITS + 1], struct err *e)
{
    uint64_t x;
    if (getrandom(&x, sizeof x, 0) != sizeof x) return err_errno(e, ERR_IO, errno, "no random number for %s", path);
    snprintf(id, ID_DIGITS + 1, "%016" PRIx64, x);
    char line[ID_DIGITS + 2];
    snprintf(line, sizeof line, "%s\n", id);
    return fs_write_atomic(path, line, ID_DIGITS + 1, e);
}

/* Rank 0: run.dir/id. */
static int read_id(const char *run_dir, bool anew, char id[ID_DIGITS + 1], struct err *e)
{
    char *path = fs_join(run_dir, "id"), *text = NULL;
    size_t n = 0;
    int64_t there;
    int rc = fs_look(path, &there, e);
    if (!rc && there >= 0 && !anew) {
        rc = fs_read_all(path, 64, &text, &n, e);
        if (!rc && !is_id(text, n))
            rc = err_set(e, ERR_CORRUPT,
                         "%s: wanted %d digits of 0-9 and a-f, which name this run's checkpoints in memory; remove the "
                         "file, and the run gets another name",
                         path, ID_DIGITS);
        if (!rc) snprintf(id, ID_DIGITS + 1, "%.*s", ID_DIGITS, text);
    } else if (!rc) {
        rc = draw(path, id, e);
    }
    xfree(text);
    xfree(path);
    return rc;
}

static int share_id(struct memckpt *m, const char *run_dir, bool anew, uint64_t words[2], struct err *e)
{
    char id[ID_DIGITS + 1] = "";
    int rc = m->rank == 0 ? read_id(run_dir, anew, id, e) : OK;
    char *real = m->rank == 0 ? realpath(run_dir, NULL) : NULL;
    words[0] = strtoull(id, NULL, 16);
    if (m->rank == 0) words[1] = hash64(real ? real : run_dir, strlen(real ? real : run_dir));
    free(real);
    if (!m->world) return rc;
    rc = comm_agree(m->world, rc, e);
    if (rc) return rc;
    comm_wait(m->world, comm_broadcast(m->world, words, 2, DT_I64, 0, "which run this is"));
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

/* A run that was here before under the same run.dir, whose files it lost: nobody will ask for its memory again. This
 * one has run.dir's lock. */
static void remove_earlier(const char *above, const char *mine, const char *prefix)
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
        if (!rc) log_warn("%s is of an earlier run in this run.dir: removed", path);
        if (!rc) rc = fs_remove_tree(path, &why);
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

static int make_dirs(struct memckpt *m, const struct config *c, const uint64_t id[2], struct err *e)
{
    char prefix[64], name[96], host[80];
    snprintf(prefix, sizeof prefix, "tutti-%u-%016" PRIx64 "-", (unsigned)geteuid(), id[1]);
    snprintf(name, sizeof name, "%s%016" PRIx64, prefix, id[0]);
    host_name(m, host);
    snprintf(m->id, sizeof m->id, "%016" PRIx64, id[0]);
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
        remove_earlier(c->checkpoint.memory_dir, name, prefix);
    }
    return rc;
}

int memckpt_open(struct memckpt *m, const struct config *c, struct comm *world, bool anew, struct err *e)
{
    uint64_t id[2] = {0, 0};
    *m = (struct memckpt){.world = world, .n = 1, .saved = -1, .lock = {.fd = -1}};
    if (world) {
        m->rank = comm_rank(world);
        m->n = comm_size(world);
    }
    find_hosts(m, c);
    int rc = share_id(m, c->run.dir, anew, id, e);
    if (!rc) rc = make_dirs(m, c, id, e);
    return memckpt_together(m, rc, e);
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
        char *lock = fs_join(m->dir, "lock");
        unlink(lock);
        xfree(lock);
    }
    rmdir(m->dir);
}
