/* SPDX-License-Identifier: Apache-2.0 */
#include "train/first_lines.h"

#include <string.h>

#include "base/log.h"
#include "config/config_memory.h"
#include "config/config_offload.h"
#include "site/choose.h"
#include "site/places.h"
#include "train/starts_file.h"

static void mesh(const struct first_lines *t, struct str *out)
{
    const struct ranks *r = t->ranks;
    if (r->n_servers) {
        str_printf(out, "%d workers, %d servers, %s", r->n - r->n_servers, r->n_servers,
                   t->cfg->parallel.server_mode == SERVER_ASYNC ? "asynchronous" : "synchronous");
        return;
    }
    struct str all = {0};
    mesh_print(&r->mesh, t->engine->cfg.model.moe.experts > 0, &all);
    const char *axes = strchr(str_text(&all), ':'); /* behind the number of ranks, which has a line of its own */
    str_puts(out, axes ? axes + 2 : str_text(&all));
    str_free(&all);
}

static void transport(const struct ranks *r, const char *mpi, int hosts, struct str *out)
{
    if (!r->world) str_puts(out, "none");
    else if (!mpi[0]) str_printf(out, "%s, threads of one process", comm_transport(r->world));
    else str_printf(out, "%s, %s", comm_transport(r->world), mpi);
    if (!mpi[0]) return;
    if (comm_ranks_here(r->world) > 1)
        str_printf(out, ", shared memory within a host (%s)",
                   comm_sees_buffers(r->world) ? "buffers seen" : "copied through stages");
    if (hosts > 1) str_puts(out, ", messages between hosts");
}

static void say(const char *key, struct str *value)
{
    log_info("%s: %s", key, str_text(value));
    str_clear(value);
}

/* What memory.recompute: auto took where the config leaves it open. */
static void chosen_for(const struct first_lines *t, struct str *s)
{
    char a[32];
    str_printf(s, ", chosen for memory.limit %s", str_bytes(a, t->cfg->memory.limit_bytes));
}

enum { SLOW = 200000000 /* bytes a second: less than a hard disk does */ };

/* What of this rank waits where; ranks are much alike. */
static void say_offload(const struct first_lines *t, struct str *s)
{
    char a[32];
    const struct tier *tier = t->engine->dev->tier;
    config_offload_text(t->cfg, s);
    if (config_offload_auto(t->cfg)) chosen_for(t, s);
    if (!tier) {
        str_printf(s, ", %s in the host's memory, which on the cpu device is the same",
                   str_bytes(a, (double)(t->engine->dev->ledger.now[MEM_HOST] - t->engine->snapshot_room.bytes)));
        say("offload", s);
        return;
    }
    str_printf(s, ", %s in %s, %s, threads that put %.2f GB/s and get %.2f GB/s",
               str_bytes(a, (double)t->engine->dev->ledger.now[MEM_DISK]), tier_dir(tier),
               tier_is_direct(tier) ? "direct I/O" : "through the page cache (its file system takes no direct I/O)",
               1e-9 * t->tier_put, 1e-9 * t->tier_get);
    say("offload", s);
    if (t->tier_put > 0 && (t->tier_put < SLOW || t->tier_get < SLOW))
        log_warn("memory.offload_to: %s is slow: %.0f MB/s are put there and %.0f MB/s come back; steps will wait for "
                 "it; choose a folder on a local SSD",
                 tier_dir(tier), 1e-6 * t->tier_put, 1e-6 * t->tier_get);
}

static void say_all(const struct first_lines *t, const struct starts_note *n)
{
    const struct places *p = t->places;
    char a[32], b[32], text[CHOOSE_TEXT];
    const struct engine *g = t->engine;
    struct str s = {0};
    log_info("model: %s, %s parameters, %s, %s of memory", model_family_name(g->cfg.model.family),
             str_count(a, (double)g->params.numel), dtype_name(g->cfg.dtype),
             str_bytes(b, (double)g->store.dev->ledger.now_total));
    if (t->lr) log_info("learning rate: %s", t->lr);
    if (t->cfg->memory.away) say_offload(t, &s);
    log_info("ranks: %d", t->ranks->n);
    places_hosts(p, &s);
    say("hosts", &s);
    str_printf(&s, "%s, zero %d", n->mesh, g->cfg.zero);
    if (config_zero_auto(t->cfg)) chosen_for(t, &s);
    say("mesh", &s);
    if (g->cfg.recompute.again || config_recompute_auto(t->cfg)) {
        choose_text(&g->cfg.recompute, text);
        str_printf(&s, "%s", text);
        if (config_recompute_auto(t->cfg)) chosen_for(t, &s);
        say("computed again", &s);
    }
    places_threads(p, &s);
    say("threads", &s);
    places_binding(p, &s);
    say("binding", &s);
    if (t->binding->how) {
        binding_line(t->binding, &s);
        say("bound", &s);
    }
    transport(t->ranks, n->mpi, p->n_hosts, &s);
    say("transport", &s);
    if (device_simulates(g->dev)) {
        str_puts(&s, "cuda-sim: a GPU's kernels, simulated by the processor; no time here says anything of a GPU");
        say("device", &s);
    }
    str_printf(&s, "%s%s%s", n->kernels, n->kernel_library[0] ? ", " : "", n->kernel_library);
    say("kernels", &s);
    if (t->cfg->numerics.accumulate != ACCUMULATE_FP32) {
        str_printf(&s, "products are added up as %s has it, in plain loops: slow, on purpose",
                   config_accumulate_name(t->cfg));
        say("accumulation", &s);
    }
    if (g->cfg.scale.first > 0) {
        str_printf(&s,
                   "fp16 in memory and messages, products in fp32 (these kernels have none of fp16: slower than bf16), "
                   "fp32 masters, "
                   "loss scale %.10g, doubled after %lld good steps",
                   g->scale.now, (long long)g->cfg.scale.grow_every);
        say("precision", &s);
    }
    if (g->recipes.of_slot) {
        recipes_text(g, &s);
        say("precision", &s);
    }
    places_warnings(p, &s);
    binding_warnings(t->binding, &s);
    for (char *line = s.p, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        log_warn("%s", line);
    }
    str_free(&s);
}

void first_lines_tell(const struct first_lines *t)
{
    struct str axes = {0};
    struct err why = {0};
    char mpi[64] = "", library[32];
    if (t->ranks->rank == 0) {
        if (!t->places->one_process) comm_mpi_library(mpi);
        kernel_libraries(&t->engine->kernels, library);
        mesh(t, &axes);
        const struct starts_note note = {
            .step = t->step,
            .ranks = t->ranks->n,
            .threads = t->engine->cfg.threads,
            .device =
                device_simulates(t->engine->dev) ? device_kind_name(DEVICE_CUDA_SIM) : device_kind_name(DEVICE_CPU),
            .kernels = t->engine->kernels.isa,
            .kernel_library = library,
            .transport = t->ranks->world ? comm_transport(t->ranks->world) : NULL,
            .mpi = mpi,
            .mesh = str_text(&axes),
            .zero = t->engine->cfg.zero,
            .places = t->places,
            .binding = t->binding,
            .epoch = t->epoch,
        };
        say_all(t, &note);
        if (starts_write(t->cfg->run.dir, &note, &why)) log_warn("%s", why.text);
    }
    str_free(&axes);
}
