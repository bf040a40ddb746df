/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c: reads /proc, the cgroup file systems (version 2, and the memory controller of version 1) and the resource
 * limits. A figure that cannot be read is no limit. Rejected: sysinfo(2), whose free memory leaves out what the page
 * cache would give back; oom_score and pressure, which say that it is too late.
 */
#include "base/limits.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/mem.h"

enum { PATH_ROOM = 4400 };

/* The number after `key` at the beginning of a line of a file; with key "" the file's first number. SIZE_MAX where
 * there is none ("max", no such file, no such line). */
static size_t number_of(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    char line[256];
    size_t n = strlen(key), found = SIZE_MAX;
    while (f && found == SIZE_MAX && fgets(line, sizeof line, f)) {
        char *end;
        if (strncmp(line, key, n) != 0) continue;
        unsigned long long v = strtoull(line + n, &end, 10);
        if (end == line + n) continue;
        found = (size_t)v;
        if (strstr(end, "kB")) found = found > SIZE_MAX / 1024 ? SIZE_MAX : found * 1024;
    }
    if (f) fclose(f);
    return found;
}

static void take(struct limit *l, size_t bytes, const char *fmt, const char *of)
{
    if (bytes >= l->bytes) return;
    l->bytes = bytes;
    snprintf(l->what, sizeof l->what, fmt, of);
}

/* ---- cgroups ---- */

/* The names that the two versions give the same things. */
static const struct version {
    const char *line; /* of /proc/self/cgroup, up to the path */
    const char *mount, *most, *now, *cached;
} versions[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

static void one_cgroup(const char *root, const struct version *v, const char *dir, struct limit *l)
{
    char path[PATH_ROOM + 100];
    snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, dir, v->most);
    size_t most = number_of(path, "");
    if (most >= SIZE_MAX / 4) return; /* version 1 writes no limit as a huge number */
    snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, dir, v->now);
    size_t now = number_of(path, "");
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, v->mount, dir);
    size_t cached = number_of(path, v->cached);
    if (now == SIZE_MAX) return;
    if (cached != SIZE_MAX) now -= cached < now ? cached : now;
    take(l, now < most ? most - now : 0, "the memory limit of cgroup %.60s (docker run --memory, systemd MemoryMax)",
         *dir ? dir : "/");
}

/* Our own group in one version; false where that version does not know us. */
static bool own_cgroup(const char *root, const struct version *v, char dir[PATH_ROOM])
{
    char path[PATH_ROOM], line[PATH_ROOM];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *at = strstr(line, v->line);
        if (!at || (v->line[0] == '0' && at != line)) continue;
        at += strlen(v->line);
        at[strcspn(at, "\n")] = 0;
        snprintf(dir, PATH_ROOM, "%s", strcmp(at, "/") ? at : "");
        found = true;
    }
    if (f) fclose(f);
    return found;
}

static void cgroups(const char *root, struct limit *l)
{
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        char dir[PATH_ROOM];
        if (!own_cgroup(root, &versions[i], dir)) continue;
        for (;;) { /* a container often sees its own group as the root, whatever the path says */
            one_cgroup(root, &versions[i], dir, l);
            char *slash = strrchr(dir, '/');
            if (!slash) break;
            *slash = 0;
        }
    }
}

/* ---- ulimits ---- */

static void one_ulimit(struct limit *l, int resource, const char *used_key, const char *name)
{
    struct rlimit r;
    if (getrlimit(resource, &r) || r.rlim_cur == RLIM_INFINITY) return;
    size_t used = number_of("/proc/self/status", used_key), most = (size_t)r.rlim_cur;
    if (used == SIZE_MAX) used = 0;
    take(l, used < most ? most - used : 0, "%s", name);
}

bool limit_addresses(struct limit *out)
{
    *out = (struct limit){.bytes = SIZE_MAX};
    one_ulimit(out, RLIMIT_AS, "VmSize:", "ulimit -v (address space)");
    one_ulimit(out, RLIMIT_DATA, "VmData:", "ulimit -d (data)");
    return out->bytes != SIZE_MAX;
}

static void pages(const char *root, struct limit *l)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    take(l, number_of(path, "MemAvailable:"), "%s", "MemAvailable of this machine");
    cgroups(root, l);
}

bool limit_memory_in(const char *root, struct limit *out)
{
    limit_addresses(out);
    pages(root, out);
    return out->bytes != SIZE_MAX;
}

bool limit_memory(struct limit *out) { return limit_memory_in("", out); }

bool limit_pages(struct limit *out)
{
    *out = (struct limit){.bytes = SIZE_MAX};
    pages("", out);
    return out->bytes != SIZE_MAX;
}

void limit_threads_text(char out[160])
{
    struct rlimit r;
    struct limit l;
    char dir[PATH_ROOM], path[PATH_ROOM + 100];
    size_t n = 0, room = 160;
    if (!getrlimit(RLIMIT_NPROC, &r) && r.rlim_cur != RLIM_INFINITY)
        n = (size_t)snprintf(out, room, "ulimit -u is %llu", (unsigned long long)r.rlim_cur);
    else n = (size_t)snprintf(out, room, "ulimit -u sets no limit");
    if (limit_addresses(&l))
        n += (size_t)snprintf(out + n, room - n, ", %zu MiB are left of %s", l.bytes >> 20, l.what);
    if (n >= room || !own_cgroup("", &versions[0], dir)) return;
    snprintf(path, sizeof path, "%s%s/pids.max", versions[0].mount, dir);
    size_t most = number_of(path, "");
    if (most != SIZE_MAX) snprintf(out + n, room - n, ", the cgroup's pids.max is %zu", most);
}
