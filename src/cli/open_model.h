/* SPDX-License-Identifier: Apache-2.0 */
/* open_model.h: the model that generate, eval, score and serve open: their options about it, and the opening.
 *
 * A command's struct has a struct cli_model, its table the rows CLI_MODEL, CLI_ADAPTER (where it takes one) and
 * CLI_IGNORE.
 */
#ifndef TUTTI_CLI_OPEN_MODEL_H
#define TUTTI_CLI_OPEN_MODEL_H

#include "cli/cli.h"
#include "decode/model_job.h"

struct cli_model {
    const char *path, *dtype, *weights, *tokenizer, *adapter, *ignore, *device;
    int64_t n, tp, pp, cp, ep, dp; /* ranks; cp, ep, dp: read, to say why there are none */
    int64_t threads;
    bool ema, crowd;
};
/* clang-format off */
#define CLI_MODEL(T, m)                                                                                                \
    {"--dtype", "D", CLI_CHOICE, offsetof(T, m.dtype), .choices = "bf16|f32", .help = ""},                             \
    CLI_WEIGHTS(T, m.weights),                                                                                         \
    CLI_MODEL_N(T, m.n, "-n", "RANKS", "ranks as threads of this process (under mpirun its processes)"),               \
    CLI_CROWD(T, m.crowd),                                                                                             \
    CLI_MODEL_N(T, m.tp, "--tp", "N", "ranks that share out heads, the MLP, the vocabulary, keys and values"),         \
    CLI_MODEL_N(T, m.pp, "--pp", "N", "ranks that share out the layers"),                                              \
    CLI_MODEL_N(T, m.cp, "--cp", "N", NULL),                                                                           \
    CLI_MODEL_N(T, m.ep, "--ep", "N", NULL),                                                                           \
    CLI_MODEL_N(T, m.dp, "--dp", "N", NULL),                                                                           \
    CLI_MODEL_N(T, m.threads, "--threads", "N", "of a rank (default: all cores, shared out)"),                         \
    {"--device", "D", CLI_TEXT, offsetof(T, m.device),                                                                 \
     .help = "auto (the default), cpu, cuda, cuda:N; cuda-sim: a GPU's kernels, simulated, slow"},                      \
    {"--tokenizer", "FILE", CLI_TEXT, offsetof(T, m.tokenizer), .help = "default: the checkpoint's own"},              \
    {"--ema", NULL, CLI_FLAG, offsetof(T, m.ema),                                                                      \
     .help = "by the average of weights (optimizer.ema), not by the last ones"}
#define CLI_MODEL_N(T, field, name, word, what)                                                                        \
    {name, word, CLI_INT, offsetof(T, field), .lo = 1, .hi = 4096, .help = (what)}
#define CLI_ADAPTER(T, field)                                                                                          \
    {"--adapter", "DIR", CLI_TEXT, offsetof(T, field),                                                                 \
     .help = "with the adapter of this folder, as peft saves it, and not the checkpoint's own; none: with none"}
/* clang-format on */

/* 0, or 2 after saying which axis makes no sense. */
int cli_model_check(const char *command, const struct cli_model *m, bool replicas);
/* Runs j, in which what m says is filled in; says what goes wrong. The exit status. */
int cli_model_run(const struct cli_model *m, struct model_job *j);

#endif
