/* SPDX-License-Identifier: Apache-2.0 */
/* config/config.h: the configuration as a plain struct, from one table (config_keys.c) that also drives parsing,
 * printing, --help and error places. Lower rooms get values taken from it, never the struct.
 *
 * Reading has two steps. config_load parses and checks each key by itself. config_resolve then fills in what follows
 * from other keys and files (vocabulary from the tokenizer, heads, dp_shard: -1) and refuses combinations, with the
 * line, the reason and the nearest legal value.
 * Order: Same(config). Floor 7.
 */
#ifndef TUTTI_CONFIG_CONFIG_H
#define TUTTI_CONFIG_CONFIG_H

#include "base/conf.h"
#include "hub/hf.h"
#include "layout/dtype.h"
#include "nn/model.h"
#include "optim/optim.h"

struct config_source {
    const char *path, *column;
    struct conf_points weight;
    const char *chat;   /* NULL: it is texts */
    int train_on;       /* enum chat_train_on */
    const char *date;   /* that chat tells of the day; NULL: none */
    const char *label;  /* NULL: it has none */
    const char *target; /* NULL: its records are one text */
};
struct config_key {
    const char *name;
};

enum config_weights { WEIGHTS_STEPWISE, WEIGHTS_LINEAR };
enum config_order { ORDER_SHUFFLED, ORDER_SEQUENTIAL };
enum config_busy { BUSY_WAIT, BUSY_SKIP };
enum config_objective { OBJECTIVE_NEXT, OBJECTIVE_DPO, OBJECTIVE_GRPO, OBJECTIVE_REWARD }; /* as train.objective's */
enum config_best { BEST_NONE, BEST_EVAL_LOSS }; /* in the order of checkpoint.best */
enum config_accumulate {
    ACCUMULATE_FP32,
    ACCUMULATE_HOPPER_BF16,
    ACCUMULATE_HOPPER_FP8,
    ACCUMULATE_HOPPER_FP8_PROMOTED,
    ACCUMULATE_AMPERE_BF16
};
enum config_grad { GRAD_FP32, GRAD_BF16 };
enum config_master { MASTER_FP32, MASTER_NONE };
enum config_round { ROUND_STOCHASTIC, ROUND_NEAREST };
enum config_reduce { REDUCE_MICROBATCH, REDUCE_STEP };
enum config_cp_balance { CP_BALANCE_AUTO, CP_BALANCE_POSITION, CP_BALANCE_AREA };
enum config_cp { CP_RING, CP_ALL_GATHER, CP_ALL_TO_ALL, CP_TWO_LEVEL };
enum config_server { SERVER_SYNC, SERVER_ASYNC };
enum bind { BIND_NONE, BIND_RANK, BIND_CORE }; /* site/binding.h */
enum config_progress { PROGRESS_AUTO, PROGRESS_INLINE, PROGRESS_THREAD };
/* How what travels is written: as it is kept, fp32 where that is the same, or by a codec (layout/codec.h). */
enum config_codec { TRAVEL_KEPT, TRAVEL_FP32, TRAVEL_BF16, TRAVEL_FP8, TRAVEL_FP8_E5M2, TRAVEL_INT8 };
#define TRAVEL_NAMES "kept|fp32|bf16|fp8|fp8-e5m2|int8"

enum config_nan { NAN_STOP, NAN_REWIND };                     /* in the order of run.on_nan */
enum config_spike { SPIKE_IGNORE, SPIKE_STOP, SPIKE_REWIND }; /* in the order of run.on_spike */
struct config {
    struct model_config model; /* its numbers: model/numbers.def */
    struct {
        const char *dir;          /* model.from */
        struct conf_list ignore;  /* model.ignore: of struct config_key */
        int64_t bos, eos[HF_EOS]; /* not keys: token ids that it names; bos -1: none */
        int n_eos;
        int64_t start; /* of encoder and decoder: what the decoder reads first */
        int64_t pad;   /* what fills up short texts; -1: none */
    } from;
    struct {
        const char *tokenizer;
        struct conf_list train, valid;
        int order;
        int64_t seed;
        bool reset_positions, mask_boundaries, skip_bad, cut_pairs;
        int pack; /* enum pack_kind */
        int64_t window, parts, group;
        int weights; /* enum config_weights */
        const char *cache_dir;
        int64_t workers, prefetch;
        struct {
            int64_t connections, tries;
            double stall_s, give_up_s;
            const char *cache_dir, *cache_limit;
            double cache_bytes; /* not a key: what cache_limit says */
        } remote;
        struct {
            double rate, spm_rate;
            const char *prefix, *suffix, *middle;
        } fim;
        double prefix_rate;
        struct {
            double rate, mask, random;
            const char *token;
            int64_t id;
        } mlm;
        struct {
            double rate, mean;
            int64_t id, start;
        } spans;
        const char *begin;
        struct {
            int crop, filter; /* enum view_crop, resize_filter */
            int64_t resize, max_pixels;
            double scale[2], ratio[2], flip, mean[3], std[3];
        } image;
    } data;
    struct {
        int64_t global, micro;
    } batch;
    struct {
        struct conf_list only, freeze; /* of const char * */
        enum config_objective objective;
        struct {
            double beta;
        } dpo;
        struct {
            double centre;
        } reward;
        struct {
            int64_t group, tokens, updates, at_once, reward_tries, tell_every;
            const char *reward;
            double reward_limit_s, reward_pause_s, beta, clip, clip_high;
            struct conf_list stop; /* of const char * */
            int advantage, mean;   /* 0: std, answers; 1: mean, tokens */
        } grpo;
    } train;
    struct {
        int kind; /* enum adapter_kind */
        int64_t rank;
        double alpha;
        bool stabilised;
        int base;                 /* enum packing: of the matrices that keep their values */
        const char *from;         /* adapter.from */
        struct conf_list targets; /* of const char * */
        struct adapter *made;     /* not a key: what the keys say, in the arena */
    } adapter;
    struct {
        int name;
        double lr, betas[2], eps, weight_decay, clip, momentum;
        bool nesterov;
        int moments; /* enum optim_moments */
        int64_t block;
        double ema;
        struct {
            double momentum;
            bool nesterov;
        } muon;
        struct {
            double decay_rate, clip;
            bool relative;
        } adafactor;
        int schedule;
        int64_t warmup_steps, decay_steps;
        double min_lr;
        struct config_group {
            int name; /* 0: as optimizer.name */
            double lr_factor;
        } embeddings, vectors;
    } optimizer;
    struct {
        int recipe; /* enum recipe */
        int grad, master, round;
        struct conf_list layers; /* of struct recipe_choice */
        int block_scale;         /* 0: powers of two, 1: fp32 */
        int64_t history, margin, telemetry;
        bool keep_weights;
        struct {
            int64_t after;
            double saturated, error;
        } fallback;
        struct {
            double initial, least;
            int64_t grow_every;
        } loss_scale; /* of fp16 */
    } precision;
    struct {
        int64_t dp_replicate, dp_shard, zero, tp, cp, ep, etp, pp;
        bool sequence_parallel;
        const char *tp_overlap;
        int64_t servers, staleness;
        int server_mode;
        int cp_algorithm;
        int64_t cp_inner;
        int cp_balance; /* enum config_cp_balance */
        const char *schedule, *schedule_file;
        const char *schedule_text; /* not a key: what is in the file */
        int64_t chunks, round;
        struct conf_list pp_layers; /* of int64_t */
        int reduce;
        /* Not a key: levels that auto may choose, a bit each (config_memory.h); 0: zero is as given. */
        unsigned may_zero;
        /* Not keys: what the launcher made of it. 0: not known, as in a plan. */
        int ranks_here; /* ranks on this rank's host */
        int sharers;    /* of them, those that may use one of this rank's cores; 0: all */
        int least_here; /* the fewest that a host has, over all hosts; 0: ranks_here */
        int cores_left; /* every rank has cores beside its threads: 1, or -1: not all; 0: ask of this one */
    } parallel;
    struct {
        double timeout_s, timeout_p2p_s, timeout_start_s;
        int progress, grad, param;
        bool check, checksum;
        const char *algorithm, *table;
        const char *table_text; /* not a key: what is in the file */
        int64_t ranks_per_host;
        double link_GBps, link_latency_us;
    } comm;
    struct {
        struct conf_list recompute; /* of const char *: nn/recompute.h's names, or auto */
        int64_t recompute_layers;
        struct conf_list offload; /* of const char * */
        int64_t offload_least, loss_chunk;
        const char *offload_to;
        unsigned away; /* not a key: what is in offload (config_offload.h); of auto, what was chosen (site/choose.h) */
        unsigned may;  /* not a key: what of it auto may choose */
        const char *limit;
        bool check;
        struct recompute chosen; /* not a key: what the two say; of auto, what was chosen (site/choose.h) */
        double limit_bytes;      /* not a key: 0 none */
    } memory;
    struct {
        double buffer;
        int64_t buffer_least;
    } moe;
    struct {
        bool deterministic, exact_order;
        enum config_accumulate accumulate;
    } numerics;
    struct {
        int64_t every, keep, keep_every, retries, memory_every;
        double every_s, retry_s, timeout_s;
        bool async, incremental;
        enum config_busy busy;
        const char *resume, *memory_dir, *copy_to; /* copy_to NULL: none */
        int64_t copy_keep;
        enum config_best best;
        int64_t average;
        struct conf_list allow_changes; /* of const char * */
    } checkpoint;
    struct {
        const char *dir;
        int64_t steps, seed, log_every, eval_every, eval_batches, compare_every, replay_every, exponents_every,
            sample_every, sample_tokens, threads;
        int64_t stop_early;
        double stop_early_delta;
        struct conf_list samples; /* of const char * */
        enum config_nan on_nan;
        enum config_spike on_spike;
        double spike_deviations;
        int64_t spike_window, rewinds;
        struct conf_list skip; /* of int64_t */
        double sample_temperature;
        const char *sample_prompt;
        const char *device; /* config_device */
        int bind;
        const char *kernels;
        bool tensorboard, rank_times;
        int64_t status_port;
        const char *status_address, *status_token;
        bool log_experts;
        bool elastic;
        int64_t spares, least_ranks;
        const char *trace;
        int64_t trace_from, trace_steps, trace_mib, trace_collect;
    } run;
};

extern const struct conf_row config_rows[];

/* Parses file and overrides into *c. conf (may be NULL) gets the handle for later errors. */
int config_load(struct config *c, struct conf **conf, struct arena *a, const char *path, char *const *overrides,
                int n_overrides, struct err *e);
/* The same of the file's text, n bytes that were read before; path names it in errors. text NULL: as config_load. */
int config_load_text(struct config *c, struct conf **conf, struct arena *a, const char *path, const char *text,
                     size_t n, char *const *overrides, int n_overrides, struct err *e);
/* Fills in what follows from other keys; n_vocab from the tokenizer (0: unknown, the key must be given). n_ranks: how
 * many ranks there are. Refuses what does not fit together. */
int config_resolve(struct config *c, const struct conf *conf, int64_t n_vocab, int n_ranks, struct err *e);
/* The whole config as YAML, every default filled in. */
void config_print(const struct config *c, struct str *out);

/* What the rooms below get. */
struct optim_config config_optim(const struct config *c);
/* What run.device names. */
enum device_kind config_device(const struct config *c);
struct lr_config config_lr(const struct config *c);
enum dtype config_dtype(const struct config *c);
int64_t config_loss_rows(const struct config *c); /* tokens per chunk of the head */
struct engine_config;
struct engine_config config_engine(const struct config *c); /* what train, plan, verify and bench all start from */
/* Whether the pipeline that c (resolved) asks for can be made of its ranks, microbatches and layers. */
int config_check_pipeline(const struct config *c, struct err *e);
/* numerics.accumulate in its words. */
const char *config_accumulate_name(const struct config *c);
/* Whether numerics.exact_order, where it is on, can have these degrees and this batch. */
int config_check_exact(const struct config *c, struct err *e);
/* Documents are put in an order of even work for the ranks of cp (parallel.cp_balance). */
bool config_cp_area(const struct config *c);
/* Samples are whole documents side by side, of which none sees another: data.pack: best_fit, and padded in groups. */
bool config_packs(const struct config *c);
/* How attention goes over cp: par's context_inner and context_gather. */
void config_context(const struct config *c, struct par *par);
bool config_sides(const struct config *c); /* what is trained on is pairs of texts */
int config_ranks(const struct config *c);  /* of all axes */
/* Whether it learns from pairs of answers: dpo, and reward models. */
static inline bool config_prefers(const struct config *c)
{
    return c->train.objective == OBJECTIVE_DPO || c->train.objective == OBJECTIVE_REWARD;
}
int64_t config_dp(const struct config *c); /* data-parallel ranks */
/* Sequences [first, first + n) of the global batch that data-parallel rank i takes. */
void config_part(const struct config *c, int i, int64_t *first, int64_t *n);
/* Of the sequences that microbatches have room for in a step, the share that exist: less than 1 where the batch does
 * not divide. Programs compute all of them, and whoever says what a step's work is counts those that exist. */
double config_share_there(const struct config *c);
/* Times that a step's batch goes forward alone before it: for nats that its gradient follows from (DPO, reward models;
 * GRPO's, in the mean over the updates of a batch). */
double config_passes(const struct config *c);
struct comm_config config_comm(const struct config *c);
bool config_cores_left(const struct config *c); /* this rank has cores beside its threads */
int config_threads(const struct config *c);     /* of one rank; 0 in the file: the cores, shared out */

#endif
