/* SPDX-License-Identifier: Apache-2.0 */
/* config_comm.c: cores that a rank's threads leave decide who moves its bytes, and that what is cut into pieces. */
#include "config/config_comm.h"

#include <string.h>

#include "base/thread.h"

/* A launcher that binds gives a rank cores that others may not use; the cgroup's quota is for all of the host. */
struct room {
    int cores, sharers; /* of this rank, and ranks on them */
    int quota, here;    /* of the host */
};

static struct room room_of(const struct config *c)
{
    int here = c->parallel.ranks_here > 1 ? c->parallel.ranks_here : 1;
    return (struct room){thread_n_cores(), c->parallel.sharers ? c->parallel.sharers : here, thread_quota_cores(),
                         here};
}

int config_threads(const struct config *c)
{
    struct room r = room_of(c);
    int each = r.cores / r.sharers < r.quota / r.here ? r.cores / r.sharers : r.quota / r.here;
    return c->run.threads ? to_int(c->run.threads) : each > 1 ? each : 1;
}

bool config_cores_left(const struct config *c)
{
    struct room r = room_of(c);
    int64_t threads = config_threads(c);
    return threads * r.sharers < r.cores && threads * r.here < r.quota;
}

/* Who moves bytes and what is cut into pieces must be the same on all ranks, whatever cores each of them has. */
static bool cores_left(const struct config *c)
{
    return c->parallel.cores_left ? c->parallel.cores_left > 0 : config_cores_left(c);
}

static bool moves_by_thread(const struct config *c)
{
    return c->comm.progress == PROGRESS_THREAD || (c->comm.progress == PROGRESS_AUTO && cores_left(c));
}

/* auto: 0, off: 1, or the number that is written; -1: something else is. */
static int overlap_asked(const char *text)
{
    if (!strcmp(text, "auto")) return 0;
    if (!strcmp(text, "off")) return 1;
    bool digit = text[0] >= '2' && text[0] <= '0' + PIECES_MOST && !text[1];
    return digit ? text[0] - '0' : -1;
}

int config_check_overlap(const struct config *c, const struct conf *f, struct err *e)
{
    if (overlap_asked(c->parallel.tp_overlap) >= 0) return OK;
    return conf_error(f, e, "parallel.tp_overlap", "wanted auto, off, or pieces from 2 to %d; got '%s'", PIECES_MOST,
                      c->parallel.tp_overlap);
}

/* By itself where tp's messages leave the host, which takes longer than cutting costs: pieces of 256 KiB, which take a
 * link of 10 GB/s ten times as long as a message's own latency, and products of 256 rows (docs/benchmarks.md). Asked
 * for: whatever keeps the bits; up to 32 rows are multiplied in another order (kernel/cpu/tile/gemm_few.c). */
struct pieces_rule config_pieces(const struct config *c)
{
    int asked = overlap_asked(c->parallel.tp_overlap),
        here = c->parallel.least_here ? c->parallel.least_here : c->parallel.ranks_here;
    bool far = cores_left(c) && here && c->parallel.tp > here;
    bool pays = moves_by_thread(c) && (far || c->comm.link_GBps > 0);
    if (asked == 0) return (struct pieces_rule){.most = pays ? 4 : 1, .least_bytes = 256 << 10, .least_rows = 256};
    return (struct pieces_rule){.most = asked, .least_rows = 64};
}

struct comm_config config_comm(const struct config *c)
{
    return (struct comm_config){
        .timeout_s = c->comm.timeout_s,
        .timeout_p2p_s = c->comm.timeout_p2p_s,
        .progress = moves_by_thread(c) ? COMM_THREAD : COMM_INLINE,
        .check = c->comm.check,
        .checksum = c->comm.checksum,
        .any_order = !c->numerics.deterministic,
        .algorithm = strcmp(c->comm.algorithm, "auto") ? c->comm.algorithm : NULL,
        .table = c->comm.table_text,
        .ranks_per_host = to_int(c->comm.ranks_per_host),
        .link_GBps = c->comm.link_GBps,
        .link_latency_s = 1e-6 * c->comm.link_latency_us,
    };
}

/* Two ranks have one order only. */
static int check_order(const struct config *c, const struct conf *f, struct err *e)
{
    const char *name = c->comm.algorithm;
    if (!c->numerics.deterministic || !strcmp(name, "auto") || comm_keeps_order(name) || config_ranks(c) < 3) return OK;
    return conf_error(f, e, "comm.algorithm",
                      "%s adds floats in an order of its own, and numerics.deterministic promises that of the ranks, "
                      "whatever carries the sum; choose numerics.deterministic: false, or direct, gather or auto",
                      name);
}

int config_check_comm(const struct config *c, const struct conf *f, struct err *e)
{
    struct err why;
    struct comm_config cc = config_comm(c);
    if (!comm_config_check(&cc, &why)) return check_order(c, f, e);
    const char *key = strncmp(why.text, "comm.table", 10) ? "comm.algorithm" : "comm.table";
    return err_set(e, ERR_REQUEST, "%s: %s", conf_where(f, key), why.text);
}
