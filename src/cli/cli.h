/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h: the commands, one file each, and what they share. A command gets argv with its own name at [0] and returns
 * the exit status: 0 done, 1 failed while running, 2 the request was wrong. Results go to stdout, all else to stderr.
 */
#ifndef TUTTI_CLI_CLI_H
#define TUTTI_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "hub/hf.h"
#include "cli/options.h"
#include "config/config.h"

int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_bench_gemm(int argc, char **argv);
int cmd_bench_experts(int argc, char **argv);
int cmd_bench_train(int argc, char **argv);
int cmd_bench_generate(int argc, char **argv);
int cmd_bench_comm(int argc, char **argv);
int cmd_bench_cast(int argc, char **argv);
int cmd_bench_checkpoint(int argc, char **argv);
int cmd_bench_data(int argc, char **argv);

/* "tutti: TEXT" on stderr; the exit status of e->code. */
int cli_fail(const struct err *e);
/* A usage error: "tutti COMMAND: TEXT (see tutti COMMAND --help)"; 2. */
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A key of the config's table, alone or with "=VALUE" behind it. */
bool cli_is_key(const char *word);

/* Keys of a Hugging Face config.json that are not to be refused: `text` is the value of --ignore, or NULL. */
struct cli_ignore {
    struct hf_ignore list;
    char *text;
    const char **keys;
};
void cli_ignore_init(struct cli_ignore *g, const char *text);
void cli_ignore_fini(struct cli_ignore *g);
/* The type that a choice names; a CHECK where it names none. */
enum dtype cli_dtype(const char *name);
/* The packing of a word of PACKING_WEIGHTS (layout/packing.h); NULL: none. */
enum packing cli_packing(const char *name);
#define CLI_WEIGHTS(T, field)                                                                                          \
    {                                                                                                                  \
        "--weights", "W", CLI_CHOICE, offsetof(T, field),                                                              \
            .choices = PACKING_WEIGHTS,                                                                                \
            .help = "keep the matrices of layers in 8 or 4 bits, rounded as they are read (default: as --dtype says)"  \
    }

/* CONFIG [-n RANKS] [--json] [key=value ...], what train, plan, explain and verify have in common. */
struct cli_args {
    const char *config;
    int64_t ranks; /* 0: not given */
    bool json, crowd;
    struct cli_keys keys;
};
#define CLI_RANKS(T, field, most, what)                                                                                \
    {                                                                                                                  \
        "-n", "RANKS", CLI_INT, offsetof(T, field), .lo = 1, .hi = (most), .help = (what)                              \
    }

/* Where ranks are threads of the process (crowd_check). */
#define CLI_CROWD(T, field)                                                                                            \
    {                                                                                                                  \
        "--crowd", NULL, CLI_FLAG, offsetof(T, field), .help = "more than 16 ranks for each core of this process, too" \
    }

/* A config for the commands that need no training data: plan, explain, bench. Reads the file and overrides, asks the
 * tokenizer (or model.from) for what they decide, resolves. c, and what it points to, live in the arena. */
int cli_config(struct config *c, struct conf **conf, struct arena *a, const char *path, char *const *overrides,
               int n_overrides, int n_ranks, struct err *e);

#endif
