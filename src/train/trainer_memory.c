/* SPDX-License-Identifier: Apache-2.0 */
/* A run and its checkpoints in memory: when they are saved, and whether a start goes on from one of them. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_impl.h"

/* ---- going on ---- */
static void say_where(const struct trainer *t)
{
    const struct memckpt *m = &t->memory;
    char bytes[32];
    if (!t->leads) return;
    str_bytes(bytes, (double)memckpt_bytes(store_saved_bytes(&t->site.engine->store), m->n_hosts));
    if (m->n_hosts > 1)
        log_info("checkpoints in memory: every %lld steps in %s, and at a partner on another host (rank 0: rank %d, of "
                 "%d "
                 "%shosts), at most %s in all",
                 (long long)t->cfg.checkpoint.memory_every, m->dir, m->partner[0], m->n_hosts,
                 m->pretended ? "pretended " : "", bytes);
    else
        log_info("checkpoints in memory: every %lld steps in %s, at most %s in all; there is one host, so they outlive "
                 "the "
                 "processes and not the machine",
                 (long long)t->cfg.checkpoint.memory_every, m->dir, bytes);
}

int trainer_memory_begin(struct trainer *t, struct err *e)
{
    int rc = memckpt_open(&t->memory, &t->cfg, t->site.ranks.world, true, e);
    if (!rc) say_where(t);
    return rc;
}

static void say_instead(const struct trainer *t, const char *refused, const struct ckpt *disk)
{
    if (!t->leads) return;
    if (disk) log_warn("not used of what is in memory: %s; the run goes on from %s", refused, ckpt_path(disk));
    else log_warn("not used of what is in memory: %s; no checkpoint is on disk: the run starts afresh", refused);
}

static void advise_unknown(struct err *e)
{
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n,
             "; start again when it can be read, or choose what to go on from with checkpoint.resume (step-00000500, "
             "never), which forgets what is in memory");
}

static void advise_changed(struct err *e)
{
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n,
             "; give what it was begun with, or choose what to go on from with checkpoint.resume (never: afresh), "
             "which "
             "forgets what is in memory");
}

int trainer_memory_load(struct trainer *t, const struct ckpt *disk, bool *loaded, struct err *e)
{
    struct str refused = {0};
    struct ckpt *c = NULL;
    *loaded = false;
    int rc = memckpt_open(&t->memory, &t->cfg, t->site.ranks.world, false, e);
    if (!rc) say_where(t);
    if (!rc) {
        rc = memckpt_find(&t->memory, disk ? ckpt_step(disk) : 0, &c, &refused, e);
        if (rc) advise_unknown(e);
    }
    if (!rc && c) {
        struct err why = {0};
        int64_t step = ckpt_step(c);
        uint8_t *needs = xcalloc(to_size(ckpt_n_files(c)) + 1, 1);
        save_needs(t->site.engine, c, needs);
        int bad = memckpt_bring(&t->memory, &c, needs, &why);
        if (!bad) bad = trainer_load(t, c, NULL, OK, &why);
        xfree(needs);
        if (t->site.ranks.world) rc = comm_status(t->site.ranks.world, e);
        if (!bad) t->memory.saved = t->step;
        if (bad) skips_free(&t->skips); /* it may have come that far */
        if (bad) evals_init(&t->evals, &t->evals.rules);
        if (bad) str_printf(&refused, "%sstep %lld: %s", refused.n ? "; " : "", (long long)step, why.text);
        *loaded = !bad;
        if (!rc &&
            bad == ERR_REQUEST) { /* whole, and of this run, which is another one now: as on disk, nobody guesses */
            *e = why;
            err_prefix(e, "what is in memory (step %lld) is newer than what is on disk", (long long)step);
            advise_changed(e);
            rc = ERR_REQUEST;
        } else if (!rc && bad == ERR_IO) { /* whole a moment ago: that it cannot be read now says nothing about it */
            *e = why;
            err_prefix(e, "what is in memory (step %lld) is newer than what is on disk", (long long)step);
            advise_unknown(e);
            rc = ERR_IO;
        }
    }
    if (!rc && refused.n && !*loaded) say_instead(t, str_text(&refused), disk);
    else if (!rc && refused.n && t->leads) log_warn("not used of what is in memory: %s", str_text(&refused));
    ckpt_close(c);
    str_free(&refused);
    return rc;
}

/* ---- saving ---- */
/* A start's first one is what it began with, which has a line ("loaded") where it went on from something. */
static int tell_state(struct trainer *t, bool first, struct err *e)
{
    const struct ckpt_told *told = &t->memory.told;
    if (first || !t->metrics || !told->has_state) return OK;
    return metrics_state(t->metrics, t->step, "kept", t->step, told->state, e);
}

int trainer_memory_save(struct trainer *t, struct err *e)
{
    struct err why = {0};
    int64_t every = t->cfg.checkpoint.memory_every;
    bool first = t->step == t->started_step;
    if (!every || t->memory.saved == t->step || (!first && t->step % every)) return OK;
    struct save_info s = trainer_save_info(t);
    int rc = memckpt_save(&t->memory, t->site.engine, &t->site.ranks, &s, &why);
    if (!rc || rc == ERR_NUMERIC || (t->site.ranks.world && comm_status(t->site.ranks.world, NULL))) {
        if (rc) *e = why;
        if (rc == ERR_NUMERIC) trainer_diverged(t, e);
        return rc ? rc : tell_state(t, first, e);
    }
    if (t->leads && (t->memory.failed & (t->memory.failed - 1)) == 0) { /* the 1st, 2nd, 4th, 8th ... in a row */
        log_status_end();
        log_warn("no checkpoint of step %lld in memory: %s; the run goes on, and the one of step %lld stays "
                 "(checkpoint.memory_dir)",
                 (long long)t->step, why.text, (long long)t->memory.saved);
    }
    return OK;
}
