/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that open a model say alike: the axes that make no sense for it, and what went wrong. */
#include "cli/open_model.h"

#include "base/crowd.h"
#include "comm/comm.h"

int cli_model_check(const char *command, const struct cli_model *m, bool replicas)
{
    if (m->cp)
        return cli_usage(command, "--cp: cp shares out the tokens of long sequences, and a step of writing has one of "
                                  "each; choose --tp, which shares out keys and values too");
    if (m->ep)
        return cli_usage(command, "--ep: ep exchanges tokens between ranks that have different ones, and here all have "
                                  "the same; --tp cuts experts too");
    if (m->dp)
        return cli_usage(command, replicas ? "--dp: -n says how many ranks there are, and what --tp x --pp leaves are "
                                             "replicas"
                                           : "--dp: there is one copy of the model; start the command once for each");
    return 0;
}

int cli_model_run(const struct cli_model *m, struct model_job *j)
{
    struct cli_ignore ignore;
    struct err e = {0};
    bool speaks;
    if (!comm_launched() && crowd_check(m->n, m->crowd, &e)) return cli_fail(&e);
    if (device_asked(&j->device, m->device ? m->device : "auto", &e)) return err_prefix(&e, "--device"), cli_fail(&e);
    if (j->device == DEVICE_NULL) return err_set(&e, ERR_REQUEST, "--device null: it only counts"), cli_fail(&e);
    cli_ignore_init(&ignore, m->ignore);
    j->path = m->path;
    j->tokenizer = m->tokenizer;
    j->adapter = m->adapter;
    j->ema = m->ema;
    j->ignore = &ignore.list;
    j->n = (int)m->n;
    j->tp = (int)m->tp;
    j->pp = (int)m->pp;
    j->threads = (int)m->threads;
    j->options.dtype = cli_dtype(m->dtype);
    j->options.weights = cli_packing(m->weights);
    int rc = model_job_run(j, &speaks, &e);
    cli_ignore_fini(&ignore);
    return !rc ? 0 : speaks ? cli_fail(&e) : err_exit_status(e.code);
}
