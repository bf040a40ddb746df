/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h: the commands, one file each, and what they share. A command gets argv with its own name at [0] and returns
 * the exit status: 0 done, 1 failed while running, 2 the request was wrong. Results go to stdout, all else to stderr.
 */
#ifndef TUTTI_CLI_CLI_H
#define TUTTI_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/hf.h"
#include "config/config.h"

int cmd_train(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_bench_gemm(int argc, char **argv);
int cmd_bench_experts(int argc, char **argv);
int cmd_bench_train(int argc, char **argv);
int cmd_bench_comm(int argc, char **argv);

/* "tutti: TEXT" on stderr; the exit status of e->code. */
int cli_fail(const struct err *e);
/* A usage error: "tutti COMMAND: TEXT (see tutti COMMAND --help)"; 2. */
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool cli_wants_help(int argc, char **argv); /* --help or -h anywhere */
/* An option with a value, as "--name VALUE" or "--name=VALUE": 1 taken (*i moves past it), 0 another argument, -1 the
 * value is missing (said on stderr). */
int cli_option(const char *command, int argc, char **argv, int *i, const char *name, const char **value);
/* Takes such an option out of the arguments, wherever it stands: *value is the last one given, or as it was. 0, or 2
 * after saying what is wrong. */
int cli_take(const char *command, int *argc, char **argv, const char *name, const char **value);
/* Takes a flag out of the arguments; whether it was there. */
bool cli_take_flag(int *argc, char **argv, const char *name);
/* Takes "--ignore KEY,KEY" out of the arguments: keys of a Hugging Face config.json that are not to be refused. The
 * names lie in `text`, which the caller xfrees with `keys`. 0, or 2 after saying what is wrong. */
struct cli_ignore {
    struct hf_ignore list;
    char *text;
    const char **keys;
};
int cli_take_ignore(const char *command, int *argc, char **argv, struct cli_ignore *out);
void cli_ignore_fini(struct cli_ignore *g);
/* A whole number within bounds, or -1 after saying what is wrong. */
int cli_int(const char *command, const char *name, const char *text, int64_t lo, int64_t hi, int64_t *out);
int cli_real(const char *command, const char *name, const char *text, double lo, double hi, double *out);

/* CONFIG [-n RANKS] [--json] [WORD] [key=value ...], what train, plan, explain and verify have in common. Returns 0, or
 * the exit status after saying what is wrong. */
enum { CLI_MAX_KEYS = 256 };
struct cli_args {
    const char *config, *word; /* word: explain's second argument that is neither option nor key, or NULL */
    int64_t ranks;
    bool ranks_given, json;
    char *overrides[CLI_MAX_KEYS];
    int n_overrides;
};
int cli_config_args(const char *command, int argc, char **argv, struct cli_args *a);

/* A config for the commands that need no training data: plan, explain, bench. Reads the file and overrides, asks the
 * tokenizer (or model.from) for what they decide, resolves. c, and what it points to, live in the arena. */
int cli_config(struct config *c, struct conf **conf, struct arena *a, const char *path, char *const *overrides,
               int n_overrides, int n_ranks, struct err *e);

#endif
