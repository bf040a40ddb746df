/* SPDX-License-Identifier: Apache-2.0 */
/* What waits on disk, seen by the trainer. A step that read other bytes than were written computed with zeros
 * (device/tier.h), so it ends the run on all ranks before anything of it is told or saved. */
#include "device/tier.h"

#include "base/log.h"
#include "base/str.h"
#include "train/trainer_impl.h"

void trainer_tier_begin(struct trainer *t)
{
    if (t->site.dev->tier) t->tier_before = tier_counts(t->site.dev->tier);
}

int trainer_tier_end(struct trainer *t, struct err *e)
{
    if (!t->site.dev->tier) return OK; /* all ranks have one, or none (site.c) */
    int rc = trainer_together(t, device_status(t->site.dev, e), e);
    if (rc) return rc;
    struct comm *w = t->site.ranks.world;
    struct tier_counts now = tier_counts(t->site.dev->tier), was = t->tier_before;
    int64_t bytes[2] = {now.put_bytes - was.put_bytes, now.got_bytes - was.got_bytes};
    double waited_s = now.waited_s - was.waited_s;
    if (w) {
        comm_wait(w, comm_all_reduce(w, bytes, bytes, 2, DT_I64, COMM_SUM, "bytes that were offloaded"));
        comm_wait(w, comm_all_reduce(w, &waited_s, &waited_s, 1, DT_F64, COMM_MAX, "waits for what was offloaded"));
    }
    t->tier = (struct tier_counts){.put_bytes = bytes[0], .got_bytes = bytes[1], .waited_s = waited_s};
    return w ? comm_status(w, e) : OK;
}

void trainer_tier_judge(struct trainer *t, double step_s)
{
    enum { FIRST = 1, LAST = 4 }; /* the first step is slower in other ways, too; three are enough to tell */
    char bytes[32];
    if (!t->site.dev->tier || t->tier_told.steps >= LAST || t->tier_told.steps++ < FIRST) return;
    t->tier_told.waited_s += t->tier.waited_s;
    t->tier_told.all_s += step_s;
    t->tier_told.bytes += (double)(t->tier.put_bytes + t->tier.got_bytes);
    if (t->tier_told.steps < LAST || t->tier_told.waited_s < 0.1 * t->tier_told.all_s) return;
    double n = LAST - FIRST, works_s = (t->tier_told.all_s - t->tier_told.waited_s) / n, each = t->tier_told.bytes / n;
    log_status_end();
    log_warn("memory.offload_to: %s: steps wait %.3f s of %.3f s for it: %s go there and come back in each, beside "
             "%.3f s of work, which hides no less than %.0f MB/s (%.0f MB/s put and %.0f MB/s got when the run began); "
             "choose a faster disk, more tokens a microbatch (batch.micro), or offload less (memory.offload)",
             tier_dir(t->site.dev->tier), t->tier_told.waited_s / n, t->tier_told.all_s / n, str_bytes(bytes, each),
             works_s, 1e-6 * each / (works_s > 1e-9 ? works_s : 1e-9), 1e-6 * t->site.tier_put,
             1e-6 * t->site.tier_get);
}
