/* SPDX-License-Identifier: Apache-2.0 */
#include "base/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

#define SYNTHETIC "synthetic:"
#define XML_MOST ((int64_t)64 << 20)

static int is_none(const char *from, struct err *e)
{
    return err_set(e, ERR_REQUEST, "%s: is no topology; wanted what lstopo FILE.xml wrote", from);
}

/* hwloc trusts what it reads and may fall over a file that is damaged: whether it does is found out in a process of its
 * own. */
static int try_file(const char *from, struct err *e)
{
    int status;
    pid_t child = fork();
    if (child < 0) return err_errno(e, ERR_MEMORY, errno, "no process to look at %s with", from);
    if (!child) {
        hwloc_topology_t h;
        for (int fd = 1; fd <= 2; fd++) close(fd);
        signal(SIGSEGV, SIG_DFL); /* not what a debugging build prints */
        signal(SIGABRT, SIG_DFL);
        _exit(hwloc_topology_init(&h) || hwloc_topology_set_xml(h, from) || hwloc_topology_load(h));
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return err_errno(e, ERR_IO, errno, "looking at %s", from);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? OK : is_none(from, e);
}

/* Where it is read from. */
static int choose_source(hwloc_topology_t h, const char *from, struct err *e)
{
    if (!from) return OK;
    if (!strncmp(from, SYNTHETIC, strlen(SYNTHETIC))) {
        const char *text = from + strlen(SYNTHETIC);
        if (!hwloc_topology_set_synthetic(h, text + strspn(text, " "))) return OK;
        return err_set(e, ERR_REQUEST, "'%s' describes no machine; such as '" SYNTHETIC "package:2 core:8 pu:2'", from);
    }
    int64_t bytes;
    int code = fs_look(from, &bytes, e);
    if (code) return code;
    if (bytes < 0) return err_set(e, ERR_REQUEST, "%s: no such file; wanted what lstopo FILE.xml wrote", from);
    if (bytes > XML_MOST)
        return err_set(e, ERR_REQUEST, "%s: has %lld bytes; a machine has no more than %lld", from, (long long)bytes,
                       (long long)XML_MOST);
    code = try_file(from, e);
    return code ? code : hwloc_topology_set_xml(h, from) ? is_none(from, e) : OK;
}

/* The package, or the memory node that is nearest: of several the first one. */
static int package_of(hwloc_topology_t h, hwloc_obj_t core)
{
    hwloc_obj_t p = hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_PACKAGE, core);
    return p ? (int)p->logical_index : -1;
}

static int node_of(hwloc_topology_t h, hwloc_obj_t core)
{
    int first = core->nodeset ? hwloc_bitmap_first(core->nodeset) : -1;
    hwloc_obj_t node = first < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(h, (unsigned)first);
    return node ? (int)node->logical_index : -1;
}

static void count_groups(struct topology *t)
{
    t->n_nodes = t->n_packages = 0;
    for (int i = 0; i < t->n; i++) {
        bool node = t->core[i].node >= 0, package = t->core[i].package >= 0;
        for (int k = 0; k < i; k++) {
            node = node && t->core[k].node != t->core[i].node;
            package = package && t->core[k].package != t->core[i].package;
        }
        t->n_nodes += node;
        t->n_packages += package;
    }
}

static void add_core(struct topology *t, hwloc_topology_t h, hwloc_obj_t o)
{
    struct topology_core *c = &t->core[t->n];
    *c = (struct topology_core){.node = node_of(h, o), .package = package_of(h, o)};
    for (int pu = hwloc_bitmap_first(o->cpuset); pu >= 0 && c->n < TOPOLOGY_THREADS;
         pu = hwloc_bitmap_next(o->cpuset, pu))
        if (pu < CORES_MOST) c->pu[c->n++] = pu;
    t->n += c->n > 0;
}

/* Machines that name no cores (some virtual ones) have hardware threads alone. */
static void read_cores(struct topology *t, hwloc_topology_t h)
{
    hwloc_obj_type_t kind = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int most = hwloc_get_nbobjs_by_type(h, kind);
    t->core = xcalloc(most > 0 ? (size_t)most : 1, sizeof *t->core);
    for (int i = 0; i < most; i++) add_core(t, h, hwloc_get_obj_by_type(h, kind, (unsigned)i));
    count_groups(t);
}

int topology_read(struct topology *t, const char *from, struct err *e)
{
    hwloc_topology_t h;
    *t = (struct topology){0};
    if (hwloc_topology_init(&h)) return err_set(e, ERR_IO, "hwloc cannot be set up");
    hwloc_topology_set_all_types_filter(h, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(h, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(h, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    int code = choose_source(h, from, e);
    if (!code && hwloc_topology_load(h))
        code = from ? err_set(e, ERR_REQUEST, "%s: is no topology that hwloc can read", from)
                    : err_set(e, ERR_IO, "hwloc cannot read this machine's cores");
    if (!code) read_cores(t, h);
    hwloc_topology_destroy(h);
    if (!code && !t->n)
        code = err_set(e, from ? ERR_REQUEST : ERR_IO, "%s: has no cores",
                       from ? from : "this machine, as hwloc sees it,");
    if (code) topology_free(t);
    return code;
}

void topology_free(struct topology *t)
{
    xfree(t->core);
    *t = (struct topology){0};
}

void topology_within(struct topology *t, const struct cores *allowed)
{
    int cores = 0;
    for (int i = 0; i < t->n; i++) {
        struct topology_core c = t->core[i];
        int n = 0;
        for (int k = 0; k < c.n; k++)
            if (cores_has(allowed, c.pu[k])) c.pu[n++] = c.pu[k];
        c.n = n;
        if (n) t->core[cores++] = c;
    }
    t->n = cores;
    count_groups(t);
}

void topology_cores(const struct topology *t, struct cores *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->core[i].n; k++) cores_add(out, t->core[i].pu[k]);
}
