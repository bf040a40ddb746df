/* SPDX-License-Identifier: Apache-2.0 */
/* model_ranks.h: how generate, eval and serve are told over which ranks a model is opened. */
#ifndef TUTTI_CLI_MODEL_RANKS_H
#define TUTTI_CLI_MODEL_RANKS_H

#include "cli/options.h"
#include "run/model_job.h"

struct cli_model_ranks {
    int64_t n, tp, pp, cp, ep, dp; /* cp, ep, dp: read, to say why there are none */
};
#define CLI_MODEL_RANK(T, field, name, word, ...)                                                                      \
    {                                                                                                                  \
        name, word, CLI_INT, offsetof(T, field), .lo = 1, .hi = 4096, __VA_ARGS__                                      \
    }
#define CLI_MODEL_RANKS(T, r)                                                                                          \
    CLI_MODEL_RANK(T, r.n, "-n", "RANKS", .help = "ranks as threads of this process (under mpirun its processes)"),    \
        CLI_MODEL_RANK(T, r.tp, "--tp", "N",                                                                           \
                       .help = "ranks that share out heads, the MLP, the vocabulary, keys and values"),                \
        CLI_MODEL_RANK(T, r.pp, "--pp", "N", .help = "ranks that share out the layers"),                               \
        CLI_MODEL_RANK(T, r.cp, "--cp", "N", .help = NULL), CLI_MODEL_RANK(T, r.ep, "--ep", "N", .help = NULL),        \
        CLI_MODEL_RANK(T, r.dp, "--dp", "N", .help = NULL)

/* 0, or 2 after saying which axis makes no sense. */
int cli_model_ranks_check(const char *command, const struct cli_model_ranks *r, bool replicas);
void cli_model_ranks_put(const struct cli_model_ranks *r, struct model_job *j);

#endif
