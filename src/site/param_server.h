/* SPDX-License-Identifier: Apache-2.0 */
/* param_server.h: the parameter server. Some ranks (workers) compute gradients; the others (servers) own the parameters
 * in shards, with masters and moments, and step them. Workers push gradients and pull parameters.
 *
 *   sync    one reduction to each server, over all workers, in rank order; one update; one broadcast of each shard
 *           back. The sums are those of data parallelism over the workers.
 *   async   a server updates with each worker's gradient as it comes and answers with its newest shard. A worker that
 *           has done c steps begins the next one only while c - (steps of the slowest worker) <= staleness (stale
 *           synchronous parallel, Ho et al. 2013); 0 lets all finish a step before any begins the next. A gradient is
 *           the mean over the worker's own tokens, clipped by its own norm, and steps with lr / workers: over a step of
 *           all workers the learning rates add up to lr.
 *
 * Staleness of an update: how many updates its server made between the pull that the gradient was computed from and its
 * push. It is measured by the servers and told to the workers.
 *
 * Shards: every parameter's rows cut over the servers by region_split (state/units.h); what travels are the routes of
 * param_server_routes.h, a shard as one message.
 * Memory: worker 1 compute copy + fp32 gradients + both again packed where there are several servers; server 1/S of
 * master, moments, compute copy, gradients; async: 1/S of a gradient per worker more.
 * Source: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.
 * param_server_new makes an asynchronous worker's engine count its own tokens only; validation over all workers says
 * otherwise. Floor 9. Order: Collective over all ranks but where it says otherwise.
 */
#ifndef TUTTI_SITE_PARAM_SERVER_H
#define TUTTI_SITE_PARAM_SERVER_H

#include "engine/engine.h"
#include "config/ranks.h"

struct param_server_config {
    bool async;
    int64_t staleness;
    struct optim_config optim;
    struct lr_config lr;
    int64_t steps, eval_every, checkpoint_every; /* async: where all meet */
};
struct staleness {
    double mean;
    int64_t max, n; /* over n updates since the last report */
};
struct param_server;

int param_server_new(struct param_server **out, const struct param_server_config *c, struct engine *g,
                     const struct ranks *r, struct err *e);
void param_server_free(struct param_server *v);
/* Servers send what they hold: after loading or initialising. step: done so far. */
void param_server_begin(struct param_server *v, int64_t step);
/* sync: one step of all. A worker gives its batch; a server NULL. False: loss or norm is not finite, nothing was
 * updated. r on servers holds what workers saw. */
bool param_server_step(struct param_server *v, const struct engine_batch *b, int64_t step, double lr,
                       struct engine_report *r);

/* async, worker: one step; waits where it is too far ahead. stop: this worker wants all to stop soon. *meet: all ranks
 * stand after this same step now (evaluation, a checkpoint, the end). ERR_NUMERIC when its gradient is not finite.
 * Local. */
int param_server_push(struct param_server *v, const struct engine_batch *b, int64_t step, bool stop,
                      struct engine_report *r, struct staleness *s, bool *meet, struct err *e);
/* async, server: serves until all meet; returns the step they stand after, or an error. *tokens grows by what was
 * trained. */
int64_t param_server_until_meeting(struct param_server *v, int64_t *tokens, struct err *e);
/* On the null device, for who wants to know what it costs (config.steps = 1): this rank's part of one step of all
 * workers, each of which pushes once. *sent: bytes between workers and servers. Local. */
int param_server_dry_step(struct param_server *v, int64_t *sent, struct err *e);
/* Bytes that this rank sent through the groups of the server; the groups, NULL after the last. Local. */
int64_t param_server_traffic(const struct param_server *v);
struct comm *param_server_group(const struct param_server *v, int i);
/* async: the steps end at this meeting. */
bool param_server_is_over(const struct param_server *v);

#endif
