/* SPDX-License-Identifier: Apache-2.0 */
/* Events in words, as JSON. Names are what a reader sees on a box: a sentence without codes; what is exact (ids, bytes,
 * operations) is in the box's args. Times are whole nanoseconds of the file's clock, printed as microseconds, so that
 * what lies inside one another still does after rounding. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "engine/trace.h"
#include "schedule/action.h"
#include "tape/lower_impl.h"

/* The clock's offset at s: on the line through the two measurements around it, flat outside. */
static double offset_at(const struct trace *t, double s)
{
    const struct trace_clock *a = &t->clock[0], *b = &t->clock[1];
    double part = b->at_s > a->at_s ? (s - a->at_s) / (b->at_s - a->at_s) : 1;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return a->offset_s + part * (b->offset_s - a->offset_s);
}

int64_t trace_ns(const struct trace *t, double s)
{
    double here = s + t->info.skew_s;
    return (int64_t)llround((here - offset_at(t, here) - t->begun_s) * 1e9);
}

void trace_layer_name(int layer, char out[32])
{
    if (layer >= 0) snprintf(out, 32, "layer %d", layer);
    else snprintf(out, 32, "%s", layer == LAYER_BEFORE ? "embedding" : "head and loss");
}

/* ---- ids ---- */
void trace_id_text(const struct trace_event *v, char out[TRACE_GROUP + 64])
{
    int me = comm_world_rank(v->group->c, comm_rank(v->group->c));
    if (v->send < 0) snprintf(out, TRACE_GROUP + 64, "%s #%lld", v->group->name, (long long)v->number);
    else
        snprintf(out, TRACE_GROUP + 64, "%s, %d to %d #%lld", v->group->name, v->send ? me : v->peer,
                 v->send ? v->peer : me, (long long)v->number);
}

uint64_t trace_id(const struct trace_event *v)
{
    char text[TRACE_GROUP + 64];
    trace_id_text(v, text);
    return hash64(text, strlen(text));
}

/* ---- names ---- */
struct name {
    char text[192];
};

static void node_words(const struct trace_event *v, struct name *out)
{
    const char *tensor = v->instr->what;
    if (v->instr->kphase == KERNEL_FWD)
        snprintf(out->text, sizeof out->text, "%s%s", tensor, v->instr->again ? ", once more" : "");
    else
        snprintf(out->text, sizeof out->text, "%s %s",
                 v->instr->kphase == KERNEL_BWD_W ? "gradient of the weights of" : "gradient through", tensor);
}

static void kernel_words(const struct trace_event *v, struct name *out)
{
    struct name node;
    node_words(v, &node);
    snprintf(out->text, sizeof out->text, "%s: %.150s", op_row(v->instr->op)->name, node.text);
}

static void action_words(const char *text, struct name *out)
{
    static const char *const verb[ACTION_N] = {[ACTION_F] = "forward of",
                                               [ACTION_B] = "backward of",
                                               [ACTION_W] = "weight gradients of",
                                               [ACTION_BW] = "backward and weight gradients of",
                                               [ACTION_RECOMPUTE] = "forward once more for the backward of",
                                               [ACTION_GATHER] = "gather",
                                               [ACTION_RELEASE] = "release",
                                               [ACTION_REDUCE] = "hand on the gradient of",
                                               [ACTION_UPDATE] = "update",
                                               [ACTION_PUBLISH] = "publish"};
    struct action a;
    int used;
    if (!action_parse(text, &a, &used, NULL) && verb[a.kind] && !action_has_microbatch((enum action_kind)a.kind))
        snprintf(out->text, sizeof out->text, "%s unit %d, stage %d", verb[a.kind], a.part, a.stage);
    else if (action_parse(text, &a, &used, NULL) || !verb[a.kind]) snprintf(out->text, sizeof out->text, "%s", text);
    else snprintf(out->text, sizeof out->text, "%s microbatch %d, stage %d", verb[a.kind], a.microbatch, a.stage);
}

/* What a message between stages is, or false. */
static bool message_words(const char *text, struct name *out)
{
    static const char *const what[ACTION_N] = {[ACTION_RECV_F] = "input",
                                               [ACTION_SEND_F] = "output",
                                               [ACTION_RECV_B] = "output's gradient",
                                               [ACTION_SEND_B] = "input's gradient"};
    struct action a;
    int used;
    if (action_parse(text, &a, &used, NULL) || text[used] || !what[a.kind]) return false;
    snprintf(out->text, sizeof out->text, "stage %d's %s, microbatch %d", a.stage, what[a.kind], a.microbatch);
    return true;
}

static void comm_words(const struct trace_event *v, struct name *out)
{
    static const char *const verb[COMM_OP_N] =
        {[COMM_BROADCAST] = "broadcast of",   [COMM_REDUCE] = "reduce of",
         [COMM_ALL_REDUCE] = "all-reduce of", [COMM_REDUCE_SCATTER] = "reduce-scatter of",
         [COMM_ALL_GATHER] = "gather of",     [COMM_ALL_TO_ALL] = "all to all of",
         [COMM_BARRIER] = "barrier:"};
    struct name what;
    char size[32], layer[32] = "";
    if (v->instr) {
        int l = v->program->tape->nodes[v->instr->node].layer;
        if (!strcmp(v->what, op_row(v->instr->op)->name))
            node_words(v, &what); /* nothing better is known (parallel/run.c) */
        else snprintf(what.text, sizeof what.text, "%s", v->what);
        if (l >= 0) snprintf(layer, sizeof layer, ", layer %d", l);
    } else if (v->send < 0 || !message_words(v->what, &what)) {
        snprintf(what.text, sizeof what.text, "%s", v->what);
    }
    str_bytes(size, (double)v->bytes);
    if (v->send < 0) snprintf(out->text, sizeof out->text, "%s %.90s%s, %s", verb[v->how], what.text, layer, size);
    else
        snprintf(out->text, sizeof out->text, "%s %.90s%s, %s rank %d, %s", v->send ? "send" : "receive", what.text,
                 layer, v->send ? "to" : "from", v->peer, size);
}

static void call_words(const struct trace_event *v, const struct trace_event *of, struct name *out)
{
    static const char *const verb[] =
        {[COMM_STARTS] = "start", [COMM_WAITS] = "wait for", [COMM_MOVES] = "move bytes of"};
    struct name what;
    if (of) comm_words(of, &what);
    else snprintf(what.text, sizeof what.text, "an operation on %s", v->group->name);
    snprintf(out->text, sizeof out->text, "%s: %.170s", verb[v->how], what.text);
}

static void words(const struct trace_event *v, const struct trace_event *of, struct name *out)
{
    static const char *const phase[PHASE_N] = {"forward", "backward", "weight gradients"};
    char layer[32];
    switch (v->kind) {
    case TRACE_F:
    case TRACE_B:
    case TRACE_W:
    case TRACE_RECOMPUTE:
    case TRACE_GATHER:
    case TRACE_RELEASE:
    case TRACE_REDUCE:
    case TRACE_OPTIMIZER:
    case TRACE_PUBLISH: action_words(v->what, out); return;
    case TRACE_STEP: snprintf(out->text, sizeof out->text, "step %lld", (long long)v->step + 1); return;
    case TRACE_KERNEL: kernel_words(v, out); return;
    case TRACE_CALL: call_words(v, of, out); return;
    case TRACE_COMM: comm_words(v, out); return;
    case TRACE_LAYER:
        trace_layer_name(v->stage, layer);
        snprintf(out->text, sizeof out->text, "%s, %s", layer, phase[v->how]);
        return;
    default: snprintf(out->text, sizeof out->text, "%s", v->what);
    }
}

/* ---- one line ---- */
static const char *const category[TRACE_N] = {"forward", "backward",  "weights", "recompute", "gather", "release",
                                              "reduce",  "optimizer", "publish", "step",      "part",   "layer",
                                              "kernel",  "call",      "comm",    "counter"};
/* The viewer's own colour names, near the colours of the schedule's picture. Perfetto chooses by name instead. */
static const char *const colour[TRACE_N] =
    {[TRACE_F] = "rail_response",     [TRACE_B] = "rail_animation", [TRACE_W] = "good",
     [TRACE_OPTIMIZER] = "rail_load", [TRACE_CALL] = "grey",        [TRACE_COMM] = "grey"};

/* A row that travels: it begins an operation and packs or unpacks rows around it. */
static bool hands_over(const struct trace_event *v) { return v->kind == TRACE_KERNEL && op_row(v->instr->op)->travels; }

static void kernel_args(const struct trace_event *v, struct json_out *o)
{
    struct kernel_call c;
    instr_call(v->instr, &c);
    const struct op_row *row = op_row(v->instr->op);
    json_put_string(o, "operation", row->name);
    json_put_int(o, "flops", (int64_t)v->flops);
    if (row->bytes) json_put_int(o, "bytes", (int64_t)row->bytes(&c));
    int layer = v->program->tape->nodes[v->instr->node].layer;
    if (layer >= 0) json_put_int(o, "layer", layer);
}

static void comm_args(const struct trace *t, const struct trace_event *v, struct json_out *o)
{
    char id[TRACE_GROUP + 64];
    trace_id_text(v, id);
    json_put_string(o, "id", id);
    json_put_string(o, "group", v->group->name);
    json_put_int(o, "ticket", v->ticket);
    json_put_string(o, "operation", comm_op_name((enum comm_op)v->how));
    json_put_string(o, "dtype", dtype_name((enum dtype)v->dtype));
    json_put_int(o, "bytes", v->bytes);
    json_put_int(o, "sent", v->sent);
    if (v->send < 0) {
        json_put_string(o, "algorithm", v->algorithm);
        json_put_int(o, "ranks", comm_size(v->group->c));
    } else {
        json_put_string(o, "direction", v->send ? "send" : "receive");
        json_put_int(o, "peer", v->peer);
    }
    json_put_string(o, "what", v->what);
    json_put_real(o, "asked_us", (double)trace_ns(t, v->asked_s) / 1e3);
}

static void args(const struct trace *t, const struct trace_event *v, struct json_out *o)
{
    struct action a;
    int used;
    json_begin_object(o, "args");
    if (v->kind == TRACE_KERNEL) kernel_args(v, o);
    if (v->kind == TRACE_COMM) comm_args(t, v, o);
    if (v->kind == TRACE_CALL) {
        static const char *const why[] = {[COMM_STARTS] = "start", [COMM_WAITS] = "wait", [COMM_MOVES] = "move"};
        json_put_string(o, "why", why[v->how]);
        json_put_string(o, "group", v->group->name);
        json_put_int(o, "ticket", v->ticket);
    }
    if (v->kind <= TRACE_PUBLISH && !action_parse(v->what, &a, &used, NULL)) {
        json_put_string(o, "action", v->what);
        json_put_int(o, "stage", a.stage);
        if (action_has_microbatch((enum action_kind)a.kind)) json_put_int(o, "microbatch", a.microbatch);
        else json_put_int(o, "unit", a.part);
    }
    if (v->kind == TRACE_LAYER && v->stage >= 0) json_put_int(o, "layer", v->stage);
    if (v->kind != TRACE_KERNEL && v->kind != TRACE_LAYER && v->kind != TRACE_COMM)
        json_put_int(o, "step", v->step + 1);
    json_end_object(o);
}

void trace_event_print(const struct trace *t, const struct trace_event *v, const struct trace_event *of, int rank,
                       int row, struct str *out)
{
    static const char *const counters[COUNTER_N] = {"activations in use", "gathered parameters in use"};
    struct json_out o = {.s = out};
    struct name name;
    int64_t from = trace_ns(t, v->from_s), to = trace_ns(t, v->to_s);
    words(v, of, &name);
    bool counts = v->kind == TRACE_COUNTER;
    json_begin_object(&o, NULL);
    json_put_string(&o, "name", counts ? counters[v->how] : name.text);
    json_put_string(&o, "cat", hands_over(v) ? "handover" : category[v->kind]);
    json_put_string(&o, "ph", counts ? "C" : "X");
    json_put_int(&o, "pid", rank);
    json_put_int(&o, "tid", row);
    json_put_real(&o, "ts", (double)from / 1e3);
    if (counts) {
        json_begin_object(&o, "args");
        json_put_int(&o, "bytes", v->bytes);
        json_end_object(&o);
    } else {
        json_put_real(&o, "dur", (double)(to - from) / 1e3);
        if (colour[v->kind]) json_put_string(&o, "cname", colour[v->kind]);
        args(t, v, &o);
    }
    json_end_object(&o);
    str_puts(out, ",\n");
}
