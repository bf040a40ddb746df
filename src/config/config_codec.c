/* SPDX-License-Identifier: Apache-2.0 */
/* A codec that is as wide as what it is given, or wider, would save nothing and round for it: refused, but for the one
 * that changes nothing at all. */
#include "config/config_codec.h"
#include "engine/engine.h"

static enum codec codec_of(int word, enum dtype kept)
{
    static const enum codec of[] = {
        [TRAVEL_KEPT] = CODEC_KEPT, [TRAVEL_FP32] = CODEC_KEPT,         [TRAVEL_BF16] = CODEC_BF16,
        [TRAVEL_FP8] = CODEC_FP8,   [TRAVEL_FP8_E5M2] = CODEC_FP8_E5M2, [TRAVEL_INT8] = CODEC_INT8,
    };
    return of[word] == CODEC_BF16 && kept == DT_BF16 ? CODEC_KEPT : of[word];
}

static enum dtype grads_kept(const struct config *c) { return c->precision.grad == GRAD_BF16 ? DT_BF16 : DT_F32; }

enum codec config_comm_grad(const struct config *c) { return codec_of(c->comm.grad, grads_kept(c)); }
enum codec config_comm_param(const struct config *c) { return codec_of(c->comm.param, config_dtype(c)); }

static int too_wide(int word, enum dtype kept, const char *key, const char *because, const struct conf *f,
                    struct err *e)
{
    if (word == TRAVEL_FP32 && kept != DT_F32)
        return conf_error(f, e, key,
                          "fp32 is wider than what is sent, %s (%s): nothing would be more exact; choose kept, fp8 or "
                          "int8",
                          dtype_name(kept), because);
    if (word == TRAVEL_BF16 && kept == DT_F16)
        return conf_error(f, e, key,
                          "bf16 is as wide as what is sent, fp16 (%s), and would only round it; choose kept, fp8 or "
                          "int8",
                          because);
    return OK;
}

/* Without a master the parameters are it, and what others are sent would have to become the owner's own. */
static bool rounds_masters(const struct config *c)
{
    bool own = config_dtype(c) == DT_F32 || c->precision.master == MASTER_NONE;
    return config_comm_param(c) != CODEC_KEPT && own && (c->parallel.zero == 1 || c->parallel.zero == 2) &&
           c->parallel.dp_shard * c->parallel.cp > 1;
}

bool config_codec_fits(const struct config *c) { return !rounds_masters(c); }

int config_resolve_codec(const struct config *c, const struct conf *f, struct err *e)
{
    bool grad = config_comm_grad(c) != CODEC_KEPT, param = config_comm_param(c) != CODEC_KEPT;
    const char *key = grad ? "comm.grad" : "comm.param", *both = grad && param ? " and comm.param: kept" : "";
    int rc = too_wide(c->comm.grad, grads_kept(c), "comm.grad", "precision.grad", f, e);
    if (!rc) rc = too_wide(c->comm.param, config_dtype(c), "comm.param", "precision.recipe", f, e);
    if (rc || (!grad && !param)) return rc;
    if (param && c->adapter.base)
        return conf_error(f, e, "comm.param",
                          "what travels of a base in few bits (adapter.base) are the numbers that are computed with; "
                          "choose kept");
    if (c->parallel.servers)
        return conf_error(f, e, key,
                          "what goes to a parameter server and comes from it is not encoded; choose kept%s, or "
                          "parallel.servers: 0",
                          both);
    if (c->numerics.exact_order)
        return conf_error(f, e, key,
                          "numerics.exact_order promises the bits of one rank, which rounds nothing that travels; "
                          "choose kept%s, or numerics.exact_order: false",
                          both);
    if (rounds_masters(c))
        return conf_error(f, e, "comm.param",
                          "these parameters are their own masters, and at zero %lld whoever steps them would lose what "
                          "others are not sent; choose kept, or parallel.zero: 3, or precision.%s",
                          (long long)c->parallel.zero,
                          c->precision.master == MASTER_NONE ? "master: fp32" : "recipe: bf16");
    return OK;
}
