/* SPDX-License-Identifier: Apache-2.0 */
/* The chain: for each call, the first family that has a way for it. What accepts and choose look at is shapes, dtypes
 * and attributes, so that a dry table on the null device finds the same way and counts the same scratch.
 * Cost: at most three tests per call. A library that was not built in is a family with empty slots (the build
 * picks its file), so there is nothing conditional here. */
#include <string.h>

#include "kernel/cpuid.h"
#include "kernel/kernel.h"

/* What a device's kernels are, by its word for them (device.kernels) and the user's (run.kernels). The last family is
 * the device's own: what it lacks too, the device cannot do, and whoever lowers a tape is told so. */
static const struct kernel_chain {
    const char *device, *name;
    const struct kernel_family *family[4];
} chains[] = {
    {"cpu", "auto", {&kernel_family_cpu, &kernel_family_onednn, &kernel_family_ref}},
    {"cpu", "ref", {&kernel_family_ref}},
    {"cuda-sim", "auto", {&kernel_family_cuda, &kernel_family_cpu, &kernel_family_onednn, &kernel_family_ref}},
    {"cuda-sim", "ref", {&kernel_family_cuda, &kernel_family_ref}},
    {"none", "auto", {&kernel_family_carried_auto}}, /* of a device that has none: all are carried to the host */
    {"none", "ref", {&kernel_family_carried_ref}},
};

static int table_init(struct kernel_table *t, const char *device, const char *name, int n_threads, bool dry,
                      struct err *e)
{
    *t = (struct kernel_table){.n_threads = n_threads, .dry = dry, .device = device};
    if (n_threads < 1) return err_set(e, ERR_REQUEST, "kernels need at least 1 thread, got %d", n_threads);
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        const struct kernel_chain *c = &chains[i];
        if (strcmp(c->device, device) || strcmp(c->name, name)) continue;
        if (c->family[0] == &kernel_family_cuda && !kernel_family_cuda.slot[OP_RMSNORM][KERNEL_FWD].run)
            return err_set(e, ERR_REQUEST,
                           "%s: this program was built without it: no C++ compiler, or TUTTI_SIMULATE=OFF", device);
        memcpy(t->chain, c->family, sizeof t->chain);
        t->name = c->name;
        t->isa = isa_name(!strcmp(name, "ref") ? ISA_REF : cpu_isa());
        return OK;
    }
    return err_set(e, ERR_REQUEST, "kernels: wanted auto or ref, got %s", name);
}

int kernel_table_init(struct kernel_table *t, const char *name, int n_threads, bool dry, struct err *e)
{
    return table_init(t, "cpu", name, n_threads, dry, e);
}

int kernel_table_of(struct kernel_table *t, const struct device *d, const char *name, int n_threads, struct err *e)
{
    return table_init(t, d->kernels, name, n_threads, d->counts_only, e);
}

struct kernel_table kernel_table_host(const struct kernel_table *t)
{
    struct kernel_table host = *t;
    int rc = strcmp(t->device, "cpu") ? kernel_table_init(&host, t->name, t->n_threads, t->dry, NULL) : OK;
    CHECK(!rc, "the host has no kernels %s", t->name);
    return host;
}

const struct kernel_slot *kernel_way(const struct kernel_family *f, const struct kernel_call *c)
{
    const struct kernel_slot *s = &f->slot[c->op][c->phase];
    if (s->choose) s = s->choose(c);
    return s && s->run && (!s->accepts || s->accepts(c)) ? s : NULL;
}

const struct kernel_slot *kernel_find(const struct kernel_table *t, const struct kernel_call *c, const char **family)
{
    for (int i = 0; i < (int)(sizeof t->chain / sizeof *t->chain) && t->chain[i]; i++) {
        const struct kernel_slot *s = kernel_way(t->chain[i], c);
        if (!s) continue;
        if (family) *family = t->chain[i]->name;
        return s;
    }
    return NULL;
}

bool kernel_computes(const struct kernel_call *c) { return kernel_way(&kernel_family_ref, c) != NULL; }

void kernel_libraries(const struct kernel_table *t, char out[32])
{
    out[0] = 0;
    for (int i = 0; i < (int)(sizeof t->chain / sizeof *t->chain) && t->chain[i]; i++)
        if (t->chain[i]->library) t->chain[i]->library(out);
}

size_t kernel_scratch(const struct kernel_table *t, const struct kernel_call *c)
{
    const struct kernel_slot *s = kernel_find(t, c, NULL);
    return s && s->scratch ? s->scratch(c, t->n_threads) : 0;
}

void kernel_run(const struct kernel_table *t, const struct kernel_call *c)
{
    const struct kernel_slot *s = c->kernel ? c->kernel : kernel_find(t, c, NULL);
    CHECK(s, "%s: no kernel for phase %d", op_row(c->op)->name, (int)c->phase);
    CHECK(c->at.kind == op_row(c->op)->attrs, "%s got attributes of %s", op_row(c->op)->name,
          attrs_kind_name(c->at.kind));
    if (t->dry) return;
    size_t need = s->scratch ? s->scratch(c, t->n_threads) : 0;
    CHECK(c->scratch_bytes >= need, "%s: %zu bytes of scratch, needs %zu", op_row(c->op)->name, c->scratch_bytes, need);
    CHECK(team_size(kernel_team(c)) <= t->n_threads, "a team of %d runs kernels made for %d threads",
          team_size(kernel_team(c)), t->n_threads);
    s->run(c);
}
