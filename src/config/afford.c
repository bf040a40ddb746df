/* SPDX-License-Identifier: Apache-2.0 */
/* afford.c: all sums are in double: what is held against a limit may be far beyond it. The key to blame is the one that
 * is furthest above what is usual, since any key of a product could be lowered and the odd one is the slip.
 */
#include "config/afford.h"

#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "config/config_memory.h"
#include "config/config_offload.h"
#include "engine/engine.h"

struct part {
    const char *key;
    int64_t value;
    double usual;
};

/* What nobody wrote follows from what somebody did, and is not to blame. */
static double oddity(const struct part *p, const struct conf *f)
{
    return (double)p->value / p->usual * (strcmp(conf_where(f, p->key), "default") ? 1 : 1e-9);
}

static const char *odd_one(const struct part *p, int n, const struct conf *f)
{
    int worst = 0;
    for (int i = 1; i < n; i++)
        if (oddity(&p[i], f) > oddity(&p[worst], f)) worst = i;
    return p[worst].key;
}

static const char *odd_of_model(const struct config *c, const struct conf *f)
{
    const struct part parts[] = {
        {"model.layers", c->model.layers, 64},
        {"model.hidden", c->model.hidden, 8192},
        {"model.ffn", c->model.ffn, 32768},
        {"model.vocab", c->model.vocab, 262144},
        {"model.heads", c->model.heads, 128},
        {"model.head_dim", c->model.head_dim, 256},
        {"model.moe.experts", c->model.moe.experts, 256},
        {"model.moe.ffn", c->model.moe.experts ? c->model.moe.ffn : 0, 16384},
        {"model.max_positions", c->model.family == MODEL_GPT2 || model_encodes(&c->model) ? c->model.max_positions : 0,
         32768},
        {"model.image_size", model_sees(&c->model) ? c->model.image_size : 0, 1024},
        {"model.channels", model_sees(&c->model) ? c->model.channels : 0, 3},
        {"model.classes", model_tells(&c->model) ? c->model.classes : 0, 32768},
    };
    return odd_one(parts, sizeof parts / sizeof *parts, f);
}

static const char *odd_of_batch(const struct config *c, const struct conf *f)
{
    const struct part parts[] = {
        {"model.seq_len", c->model.seq_len, 8192},
        {"batch.micro", c->batch.micro, 64},
        {"model.hidden", c->model.hidden, 8192},
        {"model.ffn", c->model.ffn, 32768},
    };
    return odd_one(parts, sizeof parts / sizeof *parts, f);
}

/* Matrices only, and of latent attention none: not more than the model has. */
static double least_parameters(const struct config *c)
{
    double h = (double)c->model.hidden, layers = (double)c->model.layers, n = 0;
    if (model_scans(&c->model)) {
        double inner = (double)c->model.ssm.heads * (double)c->model.ssm.head_dim, of[LAYER_KINDS] = {0};
        for (int64_t l = 0; l < c->model.layers; l++) of[model_layer_kind(&c->model, l)]++;
        n = h * (double)c->model.vocab * (c->model.tie_embeddings ? 1 : 2) + of[LAYER_SCAN] * 3 * h * inner;
        n += of[LAYER_MLP] * 2 * h * (double)c->model.ffn;
        return n + of[LAYER_ATTENTION] * h * (double)c->model.head_dim * 2 *
                       ((double)c->model.heads + (double)c->model.kv_heads);
    }
    double dense = layers - (double)model_moe_layers(&c->model),
           matrices = c->model.family == MODEL_GPT2 || model_both_ways(&c->model) ? 2 : 3;
    if (model_sees(&c->model))
        n += h * ((double)c->model.classes + (double)model_places(&c->model) +
                  (double)c->model.channels * (double)c->model.patch_size * (double)c->model.patch_size);
    else
        n +=
            (double)c->model.vocab * h * (c->model.tie_embeddings || c->model.scores || model_tells(&c->model) ? 1 : 2);
    if (!c->model.mla.kv_rank)
        n += layers * h * (double)c->model.head_dim * 2 * ((double)c->model.heads + (double)c->model.kv_heads);
    n += dense * matrices * h * (double)c->model.ffn;
    if (c->model.moe.experts) n += (layers - dense) * (double)c->model.moe.experts * 3 * h * (double)c->model.moe.ffn;
    if (c->model.family == MODEL_GPT2) n += (double)c->model.max_positions * h;
    return n;
}

/* Each exists at least once among all ranks. */
static double bytes_each(const struct config *c)
{
    bool narrow = c->precision.recipe != RECIPE_FP32;
    if (c->adapter.base) return 0.5;
    if (c->adapter.kind || c->train.only.n || c->train.freeze.n) return narrow ? 2 : 4; /* at least the weights */
    struct optim_config o = config_optim(c);
    int64_t least = optim_bytes(&o, PARAM_MATRICES);
    for (int g = 0; g < PARAM_GROUPS; g++)
        least = optim_bytes(&o, (enum param_group)g) < least ? optim_bytes(&o, (enum param_group)g) : least;
    struct config most = *c;
    if (config_offload_auto(c)) most.memory.away = c->memory.may;
    if (config_offload_dir(&most)) { /* what waits on disk is not in memory */
        struct offload away = config_offload(&most);
        if (away.optimizer) least = o.ema > 0 ? 4 : 0;
        if (away.master) least -= 4;
        if (away.params) least -= narrow ? 2 : 4;
    }
    return (narrow ? 2 + (c->precision.master == MASTER_NONE ? 0 : 4) : 4) +
           (narrow && c->precision.grad == GRAD_BF16 ? 2 : 4) + (int)least;
}

/* The input of one layer, of a microbatch, on one rank. */
static double least_activation(const struct config *c)
{
    double rows = (double)c->batch.micro * (double)c->model.seq_len / (double)(c->parallel.cp * c->parallel.tp);
    return rows * (double)c->model.hidden * (c->precision.recipe != RECIPE_FP32 ? 2 : 4);
}

int afford_counted(const struct config *c, const struct conf *f, struct err *e)
{
    const double most = 0x1p58; /* bytes; sums of a few of them still fit */
    double rows = (double)c->batch.micro * (double)c->model.seq_len;
    double wide = (double)c->model.hidden + (double)c->model.ffn + (double)c->model.head_dim * (double)c->model.heads;
    if (least_parameters(c) * 18 > most)
        return conf_error(f, e, odd_of_model(c, f),
                          "makes a model of some %.2g parameters, more bytes than can be counted; choose less",
                          least_parameters(c));
    if (rows * wide * 4 > most)
        return conf_error(f, e, odd_of_batch(c, f),
                          "makes rows of a microbatch (%.2g tokens) of some %.2g bytes, more than can be "
                          "counted; choose less",
                          rows, rows * wide * 4);
    return OK;
}

#define AS_ONE_WISHES "memory.check: false to try all the same"

static double sequence_bytes(const struct config *c)
{
    double bytes = 0;
    for (int f = 0; f < BATCH_FIELDS; f++) {
        struct batch_row r = batch_field_row(f, model_pixels(&c->model));
        bytes += (double)batch_bytes(&r, 1, c->model.seq_len);
    }
    return bytes;
}

int afford_least(const struct config *c, const struct conf *f, int n, int here, struct err *e)
{
    struct limit l;
    char want[32], room[32];
    double share = (double)here / n, p = least_parameters(c), state = p * bytes_each(c) * share,
           act = least_activation(c) * here;
    double batch = 3 * sequence_bytes(c) * (double)c->batch.global * share; /* prefetch.h: slots */
    if (here < n) state /= 4;                                               /* hosts' shares differ */
    if (!c->memory.check || !limit_memory(&l)) return OK;
    str_bytes(room, (double)l.bytes);
    if (state > (double)l.bytes)
        return conf_error(f, e, odd_of_model(c, f),
                          "makes a model of at least %.3g parameters; with all that is kept of each (%g "
                          "bytes) that is at least %s on this host, %s is available (%s); choose less, more "
                          "hosts, or " AS_ONE_WISHES,
                          p, bytes_each(c), str_bytes(want, state), room, l.what);
    if (act > (double)l.bytes)
        return conf_error(f, e, odd_of_batch(c, f),
                          "makes the rows between two layers %s large, %s is available (%s); choose less, "
                          "or " AS_ONE_WISHES,
                          str_bytes(want, act), room, l.what);
    if (batch > (double)l.bytes)
        return conf_error(f, e, c->batch.global > c->model.seq_len ? "batch.global" : "model.seq_len",
                          "makes batches of tokens of %s, %s is available (%s); choose less, or " AS_ONE_WISHES,
                          str_bytes(want, batch), room, l.what);
    return OK;
}

static const char *remedy(const struct ledger *l)
{
    int most = 0;
    for (int i = 1; i < MEM_DISK; i++)
        if (l->at_peak[i] > l->at_peak[most]) most = i;
    switch ((enum mem_cat)most) {
    case MEM_ACTIVATION:
    case MEM_WGRAD: return "choose a smaller batch.micro, or memory.recompute: full";
    case MEM_SCRATCH: return "choose a smaller batch.micro or memory.loss_chunk";
    case MEM_DATA: return "choose a smaller batch.global or model.seq_len";
    default: return "choose a smaller model, parallel.zero with more ranks on other hosts, or precision.grad: bf16";
    }
}

int afford_planned(const struct config *c, const struct conf *f, const struct ledger *l, double bytes, int here,
                   struct err *e)
{
    struct limit room;
    char want[32], have[32], each[32], cat[32];
    int most = 0;
    if (!c->memory.check || !limit_pages(&room) || bytes <= (double)room.bytes) return OK;
    for (int i = 1; i < MEM_DISK; i++)
        if (l->at_peak[i] > l->at_peak[most]) most = i;
    return conf_error(f, e, "memory.check",
                      "training needs %s on this host (%d rank%s, the largest share %s of %s a rank: %s), %s is "
                      "available (%s); %s; tutti plan tells what it is for; or " AS_ONE_WISHES,
                      str_bytes(want, bytes), here, here > 1 ? "s" : "", str_bytes(cat, (double)l->at_peak[most]),
                      str_bytes(each, (double)l->peak_total), mem_cat_name((enum mem_cat)most),
                      str_bytes(have, (double)room.bytes), room.what, remedy(l));
}

int afford_limit(const struct config *c, const size_t at_peak[MEM_N], size_t peak_total, struct err *e)
{
    double limit = c->memory.limit_bytes, bytes = (double)peak_total;
    char have[32], want[32], more[32], most[32];
    int worst = 0;
    if (limit <= 0 || bytes <= limit) return OK;
    for (int i = 1; i < MEM_HOST; i++)
        if (at_peak[i] > at_peak[worst]) worst = i;
    double state = (double)at_peak[MEM_MASTER] + (double)at_peak[MEM_OPTIMIZER];
    struct str less = {0};
    if (state > bytes - limit && !c->memory.away)
        str_printf(&less, "memory.offload: [%s] to a folder (memory.offload_to) would do without %s. ",
                   at_peak[MEM_MASTER] ? "optimizer, master" : "optimizer", str_bytes(most, state));
    int rc = err_set(e, ERR_REQUEST,
                     "memory.limit: %s a rank, and this one needs %s, %s more (the largest share %s: %s). %s%s, or let "
                     "tutti plan tell what it is for",
                     str_bytes(have, limit), str_bytes(want, bytes), str_bytes(more, bytes - limit),
                     str_bytes(most, (double)at_peak[worst]), mem_cat_name((enum mem_cat)worst), str_text(&less),
                     config_recompute_auto(c) ? "Choose a smaller batch.micro or more ranks"
                                              : "Choose memory.recompute: auto, a smaller batch.micro, or more ranks");
    str_free(&less);
    return rc;
}
