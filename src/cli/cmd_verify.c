/* SPDX-License-Identifier: Apache-2.0 */
/* tutti verify CONFIG [-n RANKS] [--axes LIST] [--json] [key=value ...] */
#include <stdio.h>

#include "cli/cli.h"
#include "verify/verify.h"

enum { STEPS = 3 };

int cmd_verify(int argc, char **argv)
{
    if (cli_wants_help(argc, argv)) {
        printf("tutti verify CONFIG [-n RANKS] [--axes LIST] [--json] [key=value ...]\n\n"
               "Trains CONFIG for %d steps on one rank and in every legal layout of up to RANKS ranks (threads of "
               "this\n"
               "process, random tokens), and compares every gradient, every updated value, the gradient norm, the "
               "loss, the loss of\n"
               "an evaluation, and the step after going on from a checkpoint that another layout saved. One rank and a "
               "few layouts\n"
               "run with plain loops (run.kernels ref) too. In bf16 routers repeat one rank's choices, and it is "
               "counted how often\n"
               "they would not have. Checkpoints go to /dev/shm, or to TMPDIR, and are removed.\n"
               "--axes dp,tp: only layouts that use these axes and no others (tp: none with dp); of dp, tp, cp, pp, "
               "ep, servers.\n"
               "Exit status 1 when a layout differs by more than the bound (fp32: 1e-5). Make big models smaller with\n"
               "keys, for example model.layers=2 model.hidden=64 batch.global=8 model.seq_len=64.\n",
               STEPS);
        return 0;
    }
    struct cli_args a;
    unsigned axes = 0;
    const char *list = "dp,tp,cp,pp,ep,servers";
    int rc = cli_take("verify", &argc, argv, "--axes", &list);
    if (!rc && !verify_axes_parse(list, &axes))
        rc = cli_usage("verify", "--axes: '%s' is no list of dp, tp, cp, pp, ep, servers", list);
    if (!rc) rc = cli_config_args("verify", argc, argv, &a);
    if (rc) return rc;
    struct err e = {0};
    struct config c;
    struct verify v = {0};
    struct arena *arena = arena_new();
    struct str out = {0};
    int ranks = a.ranks > 1 ? (int)a.ranks : 4;
    if (ranks > 64) return cli_usage("verify", "-n %d: at most 64", ranks);
    static const char *const one_rank[] = {"dp_replicate=1", "dp_shard=-1", "zero=0",    "tp=1",          "cp=1",
                                           "ep=1",           "pp=1",        "servers=0", "schedule=auto", "cp_inner=0"};
    enum { N_ONE_RANK = (int)(sizeof one_rank / sizeof *one_rank) };
    char *keys[CLI_MAX_KEYS + N_ONE_RANK];
    int n = 0;
    for (; n < a.n_overrides; n++) keys[n] = a.overrides[n];
    for (int i = 0; i < N_ONE_RANK; i++) /* the config's own layout is one of those tried */
        keys[n++] = arena_printf(arena, "parallel.%s", one_rank[i]);
    rc = cli_config(&c, NULL, arena, a.config, keys, n, 1, &e);
    if (!rc) rc = verify_run(&v, &c, ranks, axes, STEPS, &e);
    if (!rc) {
        if (a.json) verify_json(&v, &out);
        else verify_print(&v, &out);
        fputs(str_text(&out), stdout);
    }
    bool ok = v.ok;
    verify_free(&v);
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : ok ? 0 : 1;
}
