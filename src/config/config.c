/* SPDX-License-Identifier: Apache-2.0 */
/* config.c: a config is read key by key, then resolved: what follows from several keys is filled in or refused, room by
 * room, in the order in which one needs another. */
#include "config/config.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "config/afford.h"
#include "config/changes.h"
#include "config/config_codec.h"
#include "config/config_comm.h"
#include "config/config_data.h"
#include "config/config_feed.h"
#include "config/config_layout.h"
#include "config/config_memory.h"
#include "config/config_model.h"
#include "config/config_offload.h"
#include "config/config_optim.h"
#include "config/config_params.h"
#include "config/config_policy.h"
#include "config/config_precision.h"
#include "config/config_preference.h"
#include "config/config_recipe.h"
#include "config/config_run.h"
#include "config/needs.h"
#include "engine/engine.h"

/* The text of the file that a key names; nothing where it names none. */
static int read_text(const char **out, const char *path, const struct conf *f, const char *key, struct arena *a,
                     struct err *e)
{
    char *text;
    size_t n;
    if (!path) return OK;
    int rc = fs_read_all(path, (size_t)64 << 20, &text, &n, e);
    if (rc) return err_prefix(e, "%s: %s", conf_where(f, key), key);
    *out = arena_strdup(a, text);
    xfree(text);
    return OK;
}

int config_load(struct config *c, struct conf **conf, struct arena *a, const char *path, char *const *overrides,
                int n_overrides, struct err *e)
{
    return config_load_text(c, conf, a, path, NULL, 0, overrides, n_overrides, e);
}

int config_load_text(struct config *c, struct conf **conf, struct arena *a, const char *path, const char *text,
                     size_t n, char *const *overrides, int n_overrides, struct err *e)
{
    memset(c, 0, sizeof *c);
    struct conf *f = conf_new(config_rows, c, a);
    if (conf) *conf = f;
    int rc = text ? conf_read_text(f, text, n, path, e) : path ? conf_read_file(f, path, e) : OK;
    for (int i = 0; !rc && i < n_overrides; i++) rc = conf_override(f, overrides[i], e);
    if (!rc) rc = conf_finish(f, e);
    if (!rc) rc = read_text(&c->parallel.schedule_text, c->parallel.schedule_file, f, "parallel.schedule_file", a, e);
    if (!rc) rc = read_text(&c->comm.table_text, c->comm.table, f, "comm.table", a, e);
    if (!rc && c->adapter.kind) c->adapter.made = arena_alloc(a, sizeof *c->adapter.made);
    return rc;
}

void config_print(const struct config *c, struct str *out) { conf_print(config_rows, c, out); }

/* Microbatches are no larger than the batch, and not too many. */
static int resolve_batch(struct config *c, const struct conf *f, struct err *e)
{
    if (c->batch.micro > c->batch.global) {
        if (strcmp(conf_where(f, "batch.micro"), "default"))
            return conf_error(f, e, "batch.micro", "%lld is more than batch.global; choose at most %lld",
                              (long long)c->batch.micro, (long long)c->batch.global);
        c->batch.micro = c->batch.global;
    }
    int64_t dp = config_dp(c), part = (c->batch.global + dp - 1) / dp, most = SCHEDULE_MAX_MICROBATCHES;
    if (config_microbatches(c) <= most) return OK;
    return conf_error(f, e, "batch.micro", "%lld makes %lld microbatches, of at most %lld; choose at least %lld",
                      (long long)c->batch.micro, (long long)config_microbatches(c), (long long)most,
                      (long long)((part + most - 1) / most));
}

int config_resolve(struct config *c, const struct conf *f, int64_t n_vocab, int n_ranks, struct err *e)
{
    int rc = config_resolve_model(c, f, n_vocab, e);
    if (!rc) rc = needs_check(c, f, e);
    if (!rc) rc = config_resolve_preference(c, f, e);
    if (!rc) rc = config_resolve_policy(c, f, e);
    if (!rc) rc = config_resolve_data(c, f, e);
    if (!rc) rc = config_resolve_degrees(c, f, n_ranks, e);
    if (!rc) rc = afford_counted(c, f, e);
    if (!rc) rc = config_check_overlap(c, f, e);
    if (!rc) rc = resolve_batch(c, f, e);
    if (!rc) rc = config_resolve_memory(c, f, e);
    if (!rc) rc = config_resolve_feed(c, f, e);
    if (!rc) rc = config_resolve_offload(c, f, e);
    if (!rc) rc = config_resolve_schedule(c, f, e);
    if (!rc) rc = config_check_optim(c, f, e);
    if (!rc) rc = config_check_params(c, f, e);
    if (!rc) rc = config_check_precision(c, f, e);
    if (!rc) rc = config_resolve_recipe(c, f, e);
    if (!rc) rc = config_resolve_codec(c, f, e);
    if (!rc) config_resolve_zero(c, f);
    if (!rc) rc = config_resolve_lr(c, f, e);
    if (!rc) rc = changes_allowed_check(c, f, e);
    if (!rc) rc = config_check_accumulate(c, f, e);
    if (!rc) rc = config_check_run(c, f, e);
    return rc ? rc : config_check_comm(c, f, e);
}

struct engine_config config_engine(const struct config *c)
{
    return (struct engine_config){
        .model = c->model,
        .dtype = config_dtype(c),
        .micro = c->batch.micro,
        .seq = c->model.seq_len,
        .n_microbatches = config_microbatches(c),
        .loss_rows = config_loss_rows(c),
        .recompute = c->memory.chosen,
        .experts = {c->moe.buffer, c->moe.buffer_least, config_quantises(c)},
        .limit_bytes = c->memory.limit_bytes,
        .away = config_away(c),
        .offload = config_offload(c),
        .training = true,
        .optim = config_optim(c),
        .scale = config_loss_scale(c),
        .precision = config_recipe(c),
        .exponents_every = c->run.exponents_every,
        .seed = (uint64_t)c->run.seed,
        .kernels = c->run.kernels,
        .accumulate = config_accumulate_name(c),
        .threads = config_threads(c),
        .zero = to_int(c->parallel.zero),
        .freeze = {c->train.only.items, c->train.freeze.items, c->train.only.n, c->train.freeze.n},
        .pipeline = config_pipeline(c),
        .grad_dtype = c->precision.grad == GRAD_BF16 ? DT_BF16 : DT_F32,
        .no_master = c->precision.master == MASTER_NONE,
        .comm_grad = config_comm_grad(c),
        .comm_param = config_comm_param(c),
        .reduce_once = c->parallel.reduce == REDUCE_STEP,
        .exact_order = c->numerics.exact_order,
        .passes = config_passes(c),
        .by_sequence = config_prefers(c),
        .reference = c->train.objective == OBJECTIVE_GRPO && c->train.grpo.beta > 0,
        .documents_in_order = config_cp_area(c),
        .pieces = config_pieces(c),
        .batches_ahead = (int)c->data.prefetch,
        .object_bytes = to_size(config_remote_bytes(c)),
        .snapshots = c->checkpoint.async,
        .trace_bytes = c->run.trace ? to_size(c->run.trace_mib) << 20 : 0,
    };
}
