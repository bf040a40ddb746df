/* SPDX-License-Identifier: Apache-2.0 */
/* model_job.h: a model opened on one rank or several, and somebody who asks it: what generate, eval and serve begin
 * with.
 *
 * Ranks are threads of this process, or the processes of a launcher. The first rank of each replica leads: `lead` is
 * called there with what is open; the others follow it. Threads share out the cores of the host.
 * Floor 8. Order: Local; the processes of a launcher all call.
 */
#ifndef TUTTI_DECODE_MODEL_JOB_H
#define TUTTI_DECODE_MODEL_JOB_H

#include "decode/decoding.h"

struct model_at_work {
    struct weights *weights;
    struct tokenizer *tokenizer;
    struct device *device;
    struct decoding *decoding;
    int threads; /* of this rank */
    int replica, n_replicas;
    struct comm *leaders; /* of all replicas, by their number; NULL: one */
};
struct model_job {
    const char *path, *tokenizer; /* NULL: the checkpoint's own */
    const char *adapter;          /* NULL: the checkpoint's own, if any; "none" */
    bool ema;
    const struct hf_ignore *ignore;
    int n, tp, pp; /* ranks, 0: not said. n 0: the launcher's, or tp x pp; */
    bool replicas; /* ranks beyond tp x pp have the model again, and tp, where it is not said, is 1; else it is what is
                      left of n */
    int threads;   /* of a rank; 0: the cores, shared out */
    enum device_kind device;
    struct decoding_options options; /* but threads, ranks */
    int (*lead)(void *ctx, struct model_at_work *m, struct err *e);
    void *ctx;
};
/* *speaks: what went wrong is to be said by this process, and has not been. */
int model_job_run(const struct model_job *j, bool *speaks, struct err *e);
/* For who writes texts: what the model's generation_config.json wishes and is not followed, said once. */
void model_job_say_wishes(const struct model_at_work *m);

#endif
