/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees from what was asked and what was started; then every rank opens the files itself and reads its part. */
#include "decode/model_job.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "hub/hf_generation.h"
#include "hub/hf_tokenizer_keys.h"
#include "config/start_weights.h"
#include "decode/decoding_ranks.h"

#define PATIENCE_S 1e9 /* who follows may wait for a request for long; a rank that dies ends the job another way */

struct started {
    const struct model_job *j;
    int n, tp, pp, here;         /* ranks; on this host */
    struct model_at_work opened; /* files, by this process before its ranks: what is wrong with them is said once */
};

static int degrees(struct started *s, int launched, struct err *e)
{
    const struct model_job *j = s->j;
    if (launched && j->n && j->n != launched)
        return err_set(e, ERR_REQUEST,
                       "-n %d: the launcher started %d processes, and each of them is a rank; leave -n out, or start "
                       "%d processes",
                       j->n, launched, j->n);
    int tp = j->tp, pp = j->pp ? j->pp : 1;
    s->n = launched ? launched : j->n ? j->n : (tp ? tp : 1) * pp;
    if (!tp) tp = j->replicas || s->n < pp ? 1 : s->n / pp;
    bool fits = j->replicas ? s->n % (tp * pp) == 0 : s->n == tp * pp;
    s->tp = tp;
    s->pp = pp;
    if (fits) return OK;
    return err_set(e, ERR_REQUEST,
                   "tp x pp = %d x %d = %d ranks have the model, and there are %d%s; say -n %d, or choose "
                   "--tp and --pp whose product %s %d",
                   tp, pp, tp * pp, s->n, launched ? " processes" : "", tp * pp, j->replicas ? "divides" : "is", s->n);
}

static int open_files(const struct model_job *j, struct model_at_work *m, struct err *e)
{
    int rc = weights_open_ignoring(&m->weights, j->path, j->ignore, e);
    if (!rc && j->ema) rc = weights_average(m->weights, e);
    if (!rc && j->adapter) rc = weights_attach(m->weights, strcmp(j->adapter, "none") ? j->adapter : NULL, e);
    if (!rc)
        rc = j->tokenizer ? tokenizer_open(&m->tokenizer, j->tokenizer, e)
                          : source_tokenizer(m->weights, &m->tokenizer, e);
    return rc;
}

/* Of whoever asked for few bits: what that comes to. */
static void say_weights(const struct started *s, const struct model_at_work *m)
{
    const struct decoding_options *o = &s->j->options;
    size_t coded, whole;
    char a[32], b[32];
    if (o->weights == PACKING_NONE) return;
    decoding_held_bytes(m->decoding, &coded, &whole);
    log_info("weights: %s of matrices in %s and %s in %s%s", str_bytes(a, (double)coded), packing_row(o->weights)->name,
             str_bytes(b, (double)whole), dtype_name(decoding_store(m->decoding)->dtype),
             s->n > 1 ? ", of the first rank" : "");
}

void model_job_say_wishes(const struct model_at_work *m)
{
    if (!m->replica) hf_tokenizer_say(m->weights);
    static const char name[] = "generation_config.json";
    struct str wishes = {0};
    struct err e = {0};
    char *text = NULL;
    size_t n;
    int rc = m->replica ? OK : weights_file(m->weights, name, &text, &n, &e);
    if (!rc && text) rc = hf_generation_unfollowed(text, n, name, &wishes, &e);
    if (rc)
        log_warn("%s: %s could not be read, so what it wishes is not known: %s", weights_path(m->weights), name,
                 e.text);
    if (wishes.n)
        log_info("%s says %s: not followed here; how tokens are drawn is what the command or the request says", name,
                 wishes.p);
    xfree(text);
    str_free(&wishes);
}

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    const struct started *s = arg;
    const struct model_job *j = s->j;
    struct model_at_work m = {.n_replicas = 1};
    struct decoding_ranks ranks;
    struct decoding_options o = j->options;
    int rc = decoding_ranks_init(&ranks, world, s->tp, s->pp, e), cores = thread_n_cores() / s->here;
    if (rc) return rc;
    o.threads = j->threads ? j->threads : cores > 0 ? cores : 1;
    o.ranks = world ? &ranks : NULL;
    m.threads = o.threads;
    m.n_replicas = ranks.ranks.mesh.size[AXIS_DP_REPLICATE];
    m.replica = ranks.ranks.par.rank[AXIS_DP_REPLICATE];
    m.leaders = ranks.ranks.host.replicate;
    bool has_files = s->opened.weights && (!world || comm_rank(world) == 0);
    if (has_files) {
        m.weights = s->opened.weights;
        m.tokenizer = s->opened.tokenizer;
    } else {
        rc = open_files(j, &m, e);
    }
    if (!rc) rc = device_open(&m.device, j->device, o.threads, e);
    if (!rc) ranks_device(&ranks.ranks, m.device);
    if (world) rc = comm_agree(world, rc, e);
    if (!rc) {
        rc = decoding_new(&m.decoding, m.weights, m.device, &o, e);
        bool at_work = !rc;
        if (!rc && ranks.leads && m.replica == 0) say_weights(s, &m);
        if (!rc) rc = ranks.leads ? j->lead(j->ctx, &m, e) : decoding_follow(m.decoding, e);
        decoding_free(m.decoding);
        if (at_work && world) rc = comm_agree(world, rc, e);
    }
    if (m.device) device_free(m.device);
    tokenizer_free(m.tokenizer);
    weights_close(m.weights);
    decoding_ranks_fini(&ranks);
    return rc;
}

static int run_launched(struct started *s, const struct comm_config *c, bool *speaks, struct err *e)
{
    struct comm *world;
    int rc = comm_world_mpi(&world, c, e);
    if (rc) return rc;
    *speaks = comm_rank(world) == 0;
    s->here = comm_ranks_here(world);
    rc = degrees(s, comm_size(world), e);
    if (!rc) rc = run_rank(comm_size(world) > 1 ? world : NULL, s, e);
    if (rc && *speaks) fprintf(stderr, "tutti: %s\n", e->text);
    if (rc) { /* a launcher kills the others when the first of them ends with a status: rank 0 speaks before that */
        comm_wait(world, comm_barrier(world, "refused"));
        *speaks = false;
    }
    comm_free(world);
    return rc;
}

int model_job_run(const struct model_job *j, bool *speaks, struct err *e)
{
    const struct comm_config c = {.timeout_s = PATIENCE_S};
    struct started s = {.j = j};
    *speaks = true;
    if (comm_launched()) return run_launched(&s, &c, speaks, e);
    int rc = degrees(&s, 0, e);
    s.here = s.n;
    if (!rc) rc = open_files(j, &s.opened, e);
    if (rc) {
        tokenizer_free(s.opened.tokenizer);
        weights_close(s.opened.weights);
        return rc;
    }
    return s.n > 1 ? comm_run_local(s.n, &c, run_rank, &s, e) : run_rank(NULL, &s, e);
}
