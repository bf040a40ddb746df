/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/model_ranks.h"

#include "cli/cli.h"

int cli_model_ranks_check(const char *command, const struct cli_model_ranks *r, bool replicas)
{
    if (r->cp)
        return cli_usage(command, "--cp: cp shares out the tokens of long sequences, and a step of writing has one of "
                                  "each; choose --tp, which shares out keys and values too");
    if (r->ep)
        return cli_usage(command, "--ep: ep exchanges tokens between ranks that have different ones, and here all have "
                                  "the same; --tp cuts experts too");
    if (r->dp)
        return cli_usage(command, replicas ? "--dp: -n says how many ranks there are, and what --tp x --pp leaves are "
                                             "replicas"
                                           : "--dp: there is one copy of the model; start the command once for each");
    return 0;
}

void cli_model_ranks_put(const struct cli_model_ranks *r, struct model_job *j)
{
    j->n = (int)r->n;
    j->tp = (int)r->tp;
    j->pp = (int)r->pp;
}
