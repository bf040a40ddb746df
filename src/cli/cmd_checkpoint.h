/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_checkpoint.h: the subcommands of tutti checkpoint. Each gets argv with its own name at [0] and returns the exit
 * status. */
#ifndef TUTTI_CLI_CMD_CHECKPOINT_H
#define TUTTI_CLI_CMD_CHECKPOINT_H

#include "cli/cli.h"

#define CHECKPOINT_COMMAND "checkpoint"

int checkpoint_diff(int argc, char **argv);
int checkpoint_import(int argc, char **argv);
int checkpoint_export(int argc, char **argv);

/* The arguments that are no options: exactly n of them into out. Known options were taken out before (see
 * checkpoint_option). 0, or 2 after saying what is wrong. */
int checkpoint_words(int argc, char **argv, int n, const char **out, const char *usage);
/* Takes option `name` out of argv: a flag (value NULL) or one with a value. 1 it was there, 0 not, -1 said what is
 * wrong. */
int checkpoint_option(int *argc, char **argv, const char *name, const char **value);

#endif
