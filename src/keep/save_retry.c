/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's clock decides, and its word is broadcast: only while a save is owed, so that a healthy run pays nothing. */
#include "keep/save_retry.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

int save_retry_failed(struct save_retry *r, struct comm *world, bool waits, int rc, struct err *e)
{
    bool leads = !world || comm_rank(world) == 0;
    r->failed++;
    if (rc != ERR_IO || (world && comm_status(world, NULL))) return rc;
    if (r->failed > r->most) {
        char text[sizeof e->text];
        snprintf(text, sizeof text, "%s", e->text);
        return err_set(e, ERR_IO, "%.900s; that was try %lld, the last (checkpoint.retries)", text,
                       (long long)r->failed);
    }
    r->next_s = clock_now_s() + r->pause_s;
    snprintf(r->why, sizeof r->why, "%.599s", e->text);
    if (!leads) return OK;
    log_status_end();
    log_warn("%s", e->text);
    log_warn("saving is tried again in %g s, at most %lld times more; %s", r->pause_s,
             (long long)(r->most - r->failed + 1), waits ? "the run waits for it" : "training goes on meanwhile");
    return OK;
}

void save_retry_done(struct save_retry *r) { r->failed = 0; }

bool save_retry_due(const struct save_retry *r, struct comm *world)
{
    if (!r->failed) return false;
    int64_t due = clock_now_s() >= r->next_s;
    if (world) comm_wait(world, comm_broadcast(world, &due, 1, DT_I64, 0, "save again?"));
    return due != 0;
}
