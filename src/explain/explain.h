/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h: what the topics of `tutti explain` print from; private to cli/. Each topic is text for a terminal
 * (explain_lines.h: 100 columns, axes of size 1 and what repeats left out), all of it as text (full), and JSON. Floor
 * 10. Order: Local. */
#ifndef TUTTI_EXPLAIN_EXPLAIN_H
#define TUTTI_EXPLAIN_EXPLAIN_H

#include "base/json.h"
#include "explain/explain_lines.h"
#include "engine/engine.h"
#include "site/site.h"

/* Rank 0 on the null device. */
struct explain {
    const struct config *c;
    struct engine *g;
    struct device *d;
    struct ranks ranks;
    bool full;
    const char *topology; /* NULL: this machine's */
};

/* Every parameter, and what rank 0 has of it. */
int explain_layout(const struct explain *x, struct str *out, struct err *e);
/* The operations of a microbatch, and the instructions they become. */
int explain_tape(const struct explain *x, struct str *out, struct err *e);
/* Which rank does what when. */
int explain_schedule(const struct explain *x, struct str *out, struct err *e);
/* Bytes, and what a microbatch keeps. */
int explain_memory(const struct explain *x, struct str *out, struct err *e);
/* Of explain_memory: the arrays of the store. */
void explain_arrays(const struct explain *x, struct str *out);
void explain_arrays_json(const struct explain *x, struct json_out *o);
/* What rank 0 sends in one step, by group and operation, and when. */
int explain_comm(const struct explain *x, struct str *out, struct err *e);
/* Which cores each rank of the first host and its threads get (run.bind). */
int explain_binding(const struct explain *x, struct str *out, struct err *e);

/* The same as JSON: members of the open document (docs/json.md). */
int explain_layout_json(const struct explain *x, struct json_out *o, struct err *e);
int explain_tape_json(const struct explain *x, struct json_out *o, struct err *e);
int explain_schedule_json(const struct explain *x, struct json_out *o, struct err *e);
int explain_memory_json(const struct explain *x, struct json_out *o, struct err *e);
int explain_comm_json(const struct explain *x, struct json_out *o, struct err *e);
int explain_binding_json(const struct explain *x, struct json_out *o, struct err *e);

/* "attn.q.weight" of "layers.3.attn.q.weight" where a heading says that this is layer 3. */
const char *explain_short_name(const char *name, int layer);
/* A bit for each axis that has more than one rank. */
unsigned explain_axes(const struct explain *x);
/* A type's letters, by axis; axes that are not in `axes`, and those at I, are left out. */
void explain_type_json(struct json_out *o, const char *key, struct spmd_type t);

#endif
