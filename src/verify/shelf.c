/* SPDX-License-Identifier: Apache-2.0 */
/* Directories below one that nobody else has; one per place. */
#include "verify/shelf.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

#define NAME "tutti-verify-"

/* Room for all places and one that is being written. */
static bool has_room(const char *dir, int64_t bytes)
{
    struct statvfs v;
    return !statvfs(dir, &v) && (double)v.f_bavail * (double)v.f_frsize > (double)bytes * (SHELF_PLACES + 2);
}

/* Directories of processes that were killed are left behind: their names carry the process. */
static void sweep(const char *dir)
{
    char **names;
    int n = 0;
    if (fs_list(dir, &names, &n, NULL)) return;
    for (int i = 0; i < n; i++) {
        long pid = strncmp(names[i], NAME, strlen(NAME)) ? 0 : strtol(names[i] + strlen(NAME), NULL, 10);
        char *path = fs_join(dir, names[i]);
        if (pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH) (void)fs_remove_tree(path, NULL);
        xfree(path);
    }
    fs_list_free(names, n);
}

int shelf_open(struct shelf *s, int64_t bytes, struct err *e)
{
    const char *chosen = getenv("TMPDIR"), *const dirs[] = {"/dev/shm", chosen && *chosen ? chosen : "/tmp", "/tmp"};
    *s = (struct shelf){0};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        if (strlen(dirs[i]) + 48 > sizeof s->dir) continue;
        sweep(dirs[i]);
        if (!has_room(dirs[i], bytes)) continue;
        snprintf(s->dir, sizeof s->dir, "%s/" NAME "%ld-XXXXXX", dirs[i], (long)getpid());
        if (mkdtemp(s->dir)) return OK;
    }
    s->dir[0] = 0;
    return err_set(e, ERR_IO,
                   "no room for %d checkpoints of %lld bytes in /dev/shm or %s, and layouts go on from each other's; "
                   "free some, name another directory in TMPDIR, or make the model smaller (model.layers, "
                   "model.hidden)",
                   SHELF_PLACES + 2, (long long)bytes, dirs[1]);
}

void shelf_close(struct shelf *s)
{
    if (s->dir[0]) (void)fs_remove_tree(s->dir, NULL);
    s->dir[0] = 0;
}

int shelf_next(struct shelf *s, int64_t step, struct shelf_place **out, struct err *e)
{
    struct shelf_place *p = &s->place[s->n % SHELF_PLACES], fresh = {0};
    snprintf(fresh.root, sizeof fresh.root, "%s/%d", s->dir, s->n % SHELF_PLACES);
    snprintf(fresh.path, sizeof fresh.path, "%s/%d/step-%08lld", s->dir, s->n % SHELF_PLACES, (long long)step);
    *p = fresh;
    *out = p;
    s->n++;
    return fs_remove_tree(p->root, e);
}

const struct shelf_place *shelf_pick(const struct shelf *s, const struct shelf_place *but)
{
    int filled = s->n < SHELF_PLACES ? s->n : SHELF_PLACES;
    for (int i = 0; i < filled; i++) {
        const struct shelf_place *p = &s->place[(s->n * 5 + i) % filled];
        if (p != but) return p;
    }
    return NULL;
}
