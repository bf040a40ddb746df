/* One training step on the null device, then reading its books. */
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"

int plan_make(struct plan *p, const struct config *c, struct err *e)
{
    memset(p, 0, sizeof *p);
    struct device *d = NULL;
    struct engine *g = NULL;
    struct engine_config ec = config_engine(c);
    int rc = device_null_new(&d, e);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    if (!rc) {
        struct engine_batch nothing = {0};
        struct engine_report r;
        engine_init(g);
        engine_step(g, &nothing, 0, 0, &r);
        p->params = g->params.numel;
        p->tokens_per_step = c->batch.global * c->model.seq_len;
        p->flops_per_step = engine_flops_step(g);
        p->flops_per_token = engine_flops_model(g) / (double)p->tokens_per_step;
        memcpy(p->bytes, d->ledger.at_peak, sizeof p->bytes);
        p->peak_bytes = d->ledger.peak_total;
        p->act_bytes_microbatch = (int64_t)g->act[0].bytes;
        p->n_ranks = 1;
    }
    engine_free(g);
    if (d) device_free(d);
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
               c->batch.global, c->model.seq_len, c->batch.global / c->batch.micro, c->batch.micro);
    str_printf(out, "FLOPs       %s per step, %s per token\n", str_count(a, p->flops_per_step),
               str_count(b, p->flops_per_token));
    str_printf(out, "\nbytes of the rank that needs most (of %d):\n", p->n_ranks);
    for (int i = 0; i < MEM_N; i++) {
        double per = (double)p->bytes[i] / (double)p->params;
        if (p->bytes[i])
            str_printf(out, "  %-11s %16zu  %10s  %6.2f per parameter\n", mem_cat_name((enum mem_cat)i), p->bytes[i],
                       str_bytes(a, (double)p->bytes[i]), per);
    }
    str_printf(out, "  %-11s %16zu  %10s\n", "peak", p->peak_bytes, str_bytes(a, (double)p->peak_bytes));
}

static void json_bytes(const struct plan *p, struct json_out *o)
{
    json_begin_object(o, "bytes");
    for (int i = 0; i < MEM_N; i++) json_put_int(o, mem_cat_name((enum mem_cat)i), (int64_t)p->bytes[i]);
    json_end_object(o);
    json_put_int(o, "peak_bytes", (int64_t)p->peak_bytes);
}

/* One rank sends nothing: every axis is there with zeros. */
static void json_comm(struct json_out *o)
{
    json_begin_object(o, "comm");
    for (int a = 0; a < AXIS_N; a++) {
        json_begin_object(o, axis_name((enum axis)a));
        json_put_int(o, "bytes", 0);
        json_put_int(o, "messages", 0);
        json_end_object(o);
    }
    json_end_object(o);
}

void plan_json(const struct plan *p, const struct config *c, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_int(&o, "params", p->params);
    json_put_real(&o, "flops_per_step", p->flops_per_step);
    json_put_real(&o, "flops_per_token", p->flops_per_token);
    json_put_int(&o, "tokens_per_step", p->tokens_per_step);
    json_bytes(p, &o);
    json_comm(&o);
    json_begin_array(&o, "ranks");
    json_begin_object(&o, NULL);
    json_put_string(&o, "role", "all");
    json_put_int(&o, "count", p->n_ranks);
    json_put_int(&o, "microbatches", c->batch.global / c->batch.micro);
    json_put_int(&o, "activation_bytes_per_microbatch", p->act_bytes_microbatch);
    json_bytes(p, &o);
    json_end_object(&o);
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
