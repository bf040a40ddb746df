/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_checkpoint.h: the subcommands of tutti checkpoint. Each gets argv with its own name at [0] and returns the exit
 * status. */
#ifndef TUTTI_CLI_CMD_CHECKPOINT_H
#define TUTTI_CLI_CMD_CHECKPOINT_H

#include "cli/cli.h"

int checkpoint_diff(int argc, char **argv);
int checkpoint_import(int argc, char **argv);
int checkpoint_export(int argc, char **argv);
int checkpoint_reshard(int argc, char **argv);
int checkpoint_average(int argc, char **argv);
int checkpoint_inspect(int argc, char **argv);

#endif
