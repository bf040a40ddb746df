/* SPDX-License-Identifier: Apache-2.0 */
/* tutti verify CONFIG [-n RANKS] [--axes LIST] [--json] [key=value ...] */
#include <stdio.h>

#include "base/crowd.h"
#include "cli/cli.h"
#include "config/config_memory.h"
#include "verify/verify.h"

enum { STEPS = 3, MOST_RANKS = 64 };

struct request {
    struct cli_args a;
    const char *axes;
};
static const struct cli_option options[] = {
    CLI_RANKS(struct request, a.ranks, MOST_RANKS, "layouts of up to so many ranks"),
    CLI_CROWD(struct request, a.crowd),
    {"--axes", "LIST", CLI_TEXT, offsetof(struct request, axes),
     .help = "only layouts that use these axes and no others (tp: none with dp)"},
    CLI_JSON(struct request, a.json),
};
static const struct cli_word words[] = {{.name = "CONFIG", .at = offsetof(struct request, a.config)}};
static const struct cli_table table = {
    .command = "verify",
    .usage = "CONFIG [-n RANKS] [--axes LIST] [--json] [key=value ...]",
    .about =
        "Trains CONFIG for three steps on one plain rank (no recompute, no offload, no codec), and, as it says, in "
        "its\n"
        "own layout and in every legal layout of up to RANKS ranks (threads of this process, random tokens; 4 unless\n"
        "-n says), and compares every gradient, what the steps made of every value, of the optimizer's moments and of\n"
        "averaged weights, the gradient norm, the loss, the loss of an evaluation, and the step after going on from a\n"
        "checkpoint that another layout saved. A few layouts run in the trainer itself too, with validation (all "
        "where\n"
        "train.objective is dpo, reward or grpo), and with plain loops (run.kernels ref). In bf16 routers repeat one\n"
        "rank's choices, and it is counted how often they would not have. Checkpoints go to /dev/shm, or to TMPDIR,\n"
        "and are removed. Exit status 1 when a layout differs by more than the bound (fp32: 1e-5). Make big models\n"
        "smaller with keys, for example model.layers=2 model.hidden=64 batch.global=8 model.seq_len=64.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = offsetof(struct request, a.keys),
};

/* The layout that the config asks for, on as many ranks as -n says, or on fewer where it wants fewer. Returns 0 where
 * it wants more, or is one rank. */
static int own_layout(struct config *own, struct arena *arena, const struct request *q, int ranks, struct err *e)
{
    for (int n = ranks; n > 1; n--)
        if (!cli_config(own, NULL, arena, q->a.config, q->a.keys.p, q->a.keys.n, n, e)) return n;
    return 0;
}

int cmd_verify(int argc, char **argv)
{
    _Static_assert(STEPS == 3, "help says three");
    struct request q = {.axes = "dp,tp,cp,pp,ep,servers"};
    const struct cli_args *a = &q.a;
    unsigned axes = 0;
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    struct err e = {0};
    if (crowd_check(a->ranks, a->crowd, &e)) return cli_fail(&e);
    if (!verify_axes_parse(q.axes, &axes))
        return cli_usage("verify", "--axes: wanted a list of dp, tp, cp, pp, ep, servers, got '%s'", q.axes);
    struct config c;
    struct verify v = {0};
    struct arena *arena = arena_new();
    struct str out = {0};
    int ranks = a->ranks > 1 ? (int)a->ranks : 4;
    static const char *const one_rank[] = {"dp_replicate=1", "dp_shard=-1", "zero=0",    "tp=1",          "cp=1",
                                           "ep=1",           "pp=1",        "servers=0", "schedule=auto", "cp_inner=0"};
    enum { N_ONE_RANK = (int)(sizeof one_rank / sizeof *one_rank) };
    char *keys[CLI_MAX_KEYS + N_ONE_RANK];
    int n = 0;
    for (; n < a->keys.n; n++) keys[n] = a->keys.p[n];
    for (int i = 0; i < N_ONE_RANK; i++) /* the config's own layout is one of those tried */
        keys[n++] = arena_printf(arena, "parallel.%s", one_rank[i]);
    rc = cli_config(&c, NULL, arena, a->config, keys, n, 1, &e);
    if (!rc && config_recompute_auto(&c))
        rc = err_set(&e, ERR_REQUEST,
                     "memory.recompute: auto would choose for each of the layouts that are compared; name what is "
                     "computed again, such as memory.recompute=selective (the bits do not depend on it)");
    struct config own;
    struct err why = {0};
    const struct trained_asked trains = {.path = a->config, .keys = keys, .n_keys = n};
    int has_own = rc ? 0 : own_layout(&own, arena, &q, ranks, &why);
    if (!rc && !has_own && ranks > 1)
        fprintf(stderr, "tutti verify: the config's own layout is not among those of up to %d ranks: %s\n", ranks,
                why.text);
    if (!rc)
        rc = verify_all(&v,
                        &(struct verify_asked){.config = &c,
                                               .own = has_own ? &own : NULL,
                                               .trains = &trains,
                                               .max_ranks = ranks,
                                               .axes = axes,
                                               .steps = STEPS},
                        &e);
    if (!rc) {
        if (a->json) verify_json(&v, &out);
        else verify_print(&v, &out);
        fputs(str_text(&out), stdout);
    }
    bool ok = v.ok;
    verify_free(&v);
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : ok ? 0 : 1;
}
