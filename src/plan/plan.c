/* One training step on the null device, then reading its books. */
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"

/* Steps rank `rank` of n on the null device and reads its books. */
static int plan_rank(struct plan_rank *r, struct plan *p, const struct config *c, int rank, struct err *e)
{
    struct device *d = NULL;
    struct engine *g = NULL;
    struct comm *world = NULL;
    struct ranks ranks = {0};
    struct engine_config ec = config_engine(c);
    int rc = device_null_new(&d, e);
    if (!rc && p->n_ranks > 1) rc = comm_world_null(&world, rank, p->n_ranks, NULL, e);
    if (!rc) rc = ranks_init(&ranks, world, c, e);
    if (!rc) ranks_engine(&ranks, &ec);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    if (!rc) {
        struct engine_batch nothing = {0};
        struct engine_report report;
        engine_init(g);
        engine_step(g, &nothing, 0, 0, &report);
        p->params = g->params.numel;
        p->microbatches = ec.n_microbatches;
        p->tokens_per_step = c->batch.global * c->model.seq_len;
        p->flops_per_step = engine_flops_step(g) * p->n_ranks;
        p->flops_per_token = engine_flops_model(g) / (double)(ec.n_microbatches * ec.micro * ec.seq);
        r->rank = rank;
        memcpy(r->bytes, d->ledger.at_peak, sizeof r->bytes);
        r->peak_bytes = d->ledger.peak_total;
        r->act_bytes_microbatch = (int64_t)g->act[0].bytes;
        ranks_traffic(&ranks, r->comm);
    }
    engine_free(g);
    ranks_fini(&ranks);
    comm_free(world);
    if (d) device_free(d);
    return rc;
}

/* The first rank has the largest pieces, the last the smallest: those two roles there are. */
int plan_make(struct plan *p, const struct config *c, struct err *e)
{
    *p = (struct plan){.n_ranks = to_int(config_dp(c))};
    int last = p->n_ranks - 1, rc = plan_rank(&p->role[p->n_roles++], p, c, 0, e);
    if (!rc && last > 0) rc = plan_rank(&p->role[p->n_roles++], p, c, last, e);
    return rc;
}

void plan_print(const struct plan *p, const struct config *c, struct str *out)
{
    char a[32], b[32];
    str_printf(out, "model       %s, %d layers, hidden %" PRId64 ", vocabulary %" PRId64 "\n",
               model_family_name((enum model_family)c->model.family), (int)c->model.layers, c->model.hidden,
               c->model.vocab);
    str_printf(out, "parameters  %" PRId64 " (%s)\n", p->params, str_count(a, (double)p->params));
    str_printf(out, "step        %" PRId64 " sequences x %" PRId64 " tokens in %" PRId64 " microbatches of %" PRId64 "\n",
               c->batch.global, c->model.seq_len, p->microbatches, c->batch.micro);
    str_printf(out, "FLOPs       %s per step, %s per token\n", str_count(a, p->flops_per_step),
               str_count(b, p->flops_per_token));
    const struct plan_rank *most = &p->role[0];
    str_printf(out, "\nbytes of the rank that needs most (of %d):\n", p->n_ranks);
    for (int i = 0; i < MEM_N; i++) {
        double per = (double)most->bytes[i] / (double)p->params;
        if (most->bytes[i])
            str_printf(out, "  %-11s %16zu  %10s  %6.2f per parameter\n", mem_cat_name((enum mem_cat)i), most->bytes[i],
                       str_bytes(a, (double)most->bytes[i]), per);
    }
    str_printf(out, "  %-11s %16zu  %10s\n", "peak", most->peak_bytes,
               str_bytes(a, (double)most->peak_bytes));
    for (int x = 0; x < AXIS_N; x++)
        if (most->comm[x].operations)
            str_printf(out, "  sent over %-12s %16" PRId64 " bytes in %" PRId64 " messages per step\n",
                       axis_name((enum axis)x), most->comm[x].bytes, most->comm[x].messages);
}

static void json_bytes(const struct plan_rank *r, struct json_out *o)
{
    json_begin_object(o, "bytes");
    for (int i = 0; i < MEM_N; i++) json_put_int(o, mem_cat_name((enum mem_cat)i), (int64_t)r->bytes[i]);
    json_end_object(o);
    json_put_int(o, "peak_bytes", (int64_t)r->peak_bytes);
}

/* Every axis is there; those of size 1 with zeros. */
static void json_comm(const struct plan_rank *r, struct json_out *o)
{
    json_begin_object(o, "comm");
    for (int a = 0; a < AXIS_N; a++) {
        json_begin_object(o, axis_name((enum axis)a));
        json_put_int(o, "bytes", r->comm[a].bytes);
        json_put_int(o, "messages", r->comm[a].messages);
        json_end_object(o);
    }
    json_end_object(o);
}

void plan_json(const struct plan *p, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_int(&o, "params", p->params);
    json_put_real(&o, "flops_per_step", p->flops_per_step);
    json_put_real(&o, "flops_per_token", p->flops_per_token);
    json_put_int(&o, "tokens_per_step", p->tokens_per_step);
    json_bytes(&p->role[0], &o);
    json_comm(&p->role[0], &o);
    json_begin_array(&o, "ranks");
    for (int i = 0; i < p->n_roles; i++) {
        const struct plan_rank *r = &p->role[i];
        json_begin_object(&o, NULL);
        json_put_int(&o, "rank", r->rank);
        json_put_int(&o, "microbatches", p->microbatches);
        json_put_int(&o, "activation_bytes_per_microbatch", r->act_bytes_microbatch);
        json_bytes(r, &o);
        json_comm(r, &o);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
