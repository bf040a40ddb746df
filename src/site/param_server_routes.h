/* SPDX-License-Identifier: Apache-2.0 */
/* param_server_routes.h: what travels between workers and servers (param_server.h), as routes: a pull takes parameters
 * from the layout of the servers, who share out the rows of each, to that of the workers; a push takes gradients the
 * other way, as a sum owed over the workers, or from one of them alone.
 *
 * The two layouts are on meshes of their own; ranks are numbered as in the world, workers first. Everything between two
 * ranks is one message, packed on the way where rows of several servers lie between each other. With all workers at
 * once it is recognised (layout/recognise.h): a broadcast from each server, a reduction to each. Floor 9. Order: as
 * stated.
 */
#ifndef TUTTI_SITE_PARAM_SERVER_ROUTES_H
#define TUTTI_SITE_PARAM_SERVER_ROUTES_H

#include "config/ranks.h"
#include "engine/engine.h"
#include "state/route_run.h"

struct param_server_routes {
    struct param_table workers, servers; /* the whole model on either mesh */
    int n_workers, n_servers;
};
void param_server_routes_open(struct param_server_routes *x, const struct engine *g, const struct ranks *r);
void param_server_routes_close(struct param_server_routes *x);

struct param_server_way {
    struct route **route; /* [n] by parameter */
    int n;
    struct route_run *run;
};
/* worker: the only one that takes part; -1: all do. landing: where a server receives a push, laid out as its gradients
 * are; NULL: there. Collective(c) where all take part; else over that worker and the servers. */
int param_server_way_new(struct param_server_way *w, const struct param_server_routes *x, struct comm *c,
                         struct engine *g, bool push, int worker, const struct buffer *landing, struct err *e);
void param_server_way_free(struct param_server_way *w);

#endif
