/* SPDX-License-Identifier: Apache-2.0 */
/* null_world.c: a rank that only counts. comm.c counts every operation by its program before a transport sees it; here
 * it ends there, so what is predicted is what a real transport will count. */
#include "base/mem.h"
#include "comm/impl.h"

static int null_join(struct comm *c, struct err *e)
{
    (void)c;
    (void)e;
    return OK;
}

static void null_leave(struct comm *c) { (void)c; }

static void null_close(struct world *w) { mem_pages_free(w->shared, board_bytes(1)); }

static const struct transport_ops transport_null = {
    .name = "null",
    .counts_only = true,
    .join = null_join,
    .leave = null_leave,
    .close = null_close,
};

int comm_world_null(struct comm **out, int rank, int n, const struct comm_config *cfg, struct err *e)
{
    CHECK(n >= 1 && rank >= 0 && rank < n, "rank %d of %d", rank, n);
    int rc = comm_config_check(cfg, e);
    if (rc) return rc;
    struct comm_config inline_cfg = cfg ? *cfg : (struct comm_config){0};
    inline_cfg.progress = COMM_INLINE;
    struct board *board = mem_pages_new(board_bytes(1));
    if (!board) return err_set(e, ERR_MEMORY, "no memory for a board");
    board_init(board, 1);
    struct world *w = world_new(&transport_null, board, board, rank, n, NULL, 0, &inline_cfg);
    w->row = 0;
    int *all = xcalloc((size_t)n, sizeof *all);
    for (int r = 0; r < n; r++) all[r] = r;
    rc = world_comm(out, w, all, n, "world", e);
    xfree(all);
    return rc;
}
