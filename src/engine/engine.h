/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: one rank's machine room: parameters, tape, programs, slabs and batch buffers on a device, built once;
 * then one call per optimizer step. Training, plans, benchmarks and layout checks all run this.
 *
 * Invariants
 *   1. After engine_new nothing is allocated on the device: the ledger's totals are final.
 *   2. On the null device the same calls give the same ledger.
 *   3. One call of engine_step runs every action of the schedule, in its order; what decides is the schedule.
 * Floor 6. Order: Collective over all ranks.
 */
#ifndef TUTTI_ENGINE_ENGINE_H
#define TUTTI_ENGINE_ENGINE_H

#include "device/device.h"
#include "nn/model.h"
#include "optim/optim.h"
#include "optim/update_program.h"
#include "parallel/run.h"
#include "engine/cut.h"
#include "engine/exponents.h"
#include "engine/itinerary.h"
#include "engine/recipes.h"
#include "engine/reference.h"
#include "engine/scale.h"
#include "engine/stages.h"
#include "engine/telemetry.h"
#include "engine/trace.h"
#include "schedule/schedule.h"
#include "state/copies.h"
#include "state/exchange.h"
#include "state/freeze.h"
#include "state/snapshot.h"
#include "state/store.h"
#include "program/away.h"
#include "program/program_run.h"
#include "tape/lower.h"

/* How the layers are spread over the ranks of pp (axis[AXIS_PP]), and in which order they work. */
struct pipeline_config {
    const char *kind; /* a generator's name (schedule/generator.c); NULL: onestage alone, 1f1b on several ranks */
    int chunks;       /* stages per rank; 0: the generator's own */
    int round;        /* microbatches per round, where there are rounds; 0: the generator's own */
    const char *text, *what; /* a schedule of the user's own and where it comes from; NULL: generated */
    const int64_t *layers;   /* [n_layers] how many each stage takes; NULL: dealt by cost */
    int n_layers;
};

/* What waits in slower memory while nobody works on it, and which that is. */
struct offload {
    enum mem_cat to;        /* MEM_HOST, or MEM_DISK: the device's tier */
    bool optimizer, master; /* optimizers' arrays, but for averages; masters */
    bool params;            /* weights, between their uses (state/fetch.h) */
};

/* Communicators between the hosts of some of the groups below, for the few numbers that hosts tell each other: apart
 * from the data plane. */
struct host_groups {
    struct comm *shard, *replicate, *expert, *tp, *pp; /* NULL: of size 1 */
};

struct engine_config {
    struct model_config model;
    enum dtype dtype;
    int64_t micro, seq;     /* sequences per microbatch, tokens per sequence */
    int64_t n_microbatches; /* per optimizer step */
    int64_t loss_rows;
    struct recompute recompute;
    struct expert_room experts; /* how large the buffer of rows for experts is (parallel/expert.h) */
    double limit_bytes;         /* that all memory stays below while a checkpoint is read (loading.h); 0: none */
    struct away_rule away;      /* activations wait elsewhere for backward (tape/offload.c) */
    struct offload offload;
    bool training; /* false: forward only, no optimizer state */
    struct optim_config optim;
    const struct array_row *state; /* what is kept beside parameters and is not stepped (state/array.h); borrowed */
    int n_state;
    uint64_t seed;
    struct freeze freeze;   /* which parameters are trained */
    const char *kernels;    /* "auto" or "ref" */
    const char *accumulate; /* kernel_table_accumulate's; NULL: fp32 */
    int threads;            /* of the rank; the null device counts scratch for as many */
    int rank;               /* in the world, for messages */
    int zero;               /* what dp_shard shares */
    enum dtype grad_dtype;  /* f32 or bf16 */
    bool no_master;         /* store.h */
    bool reduce_once;       /* sum microbatches here, then ranks, once a step (exchange.h) */
    bool exact_order;       /* exact.h */
    bool reference;         /* the weights that the run began with are kept, too (reference.h) */
    double passes;          /* of forward alone over its batch, before each step: for counting FLOPs */
    bool by_sequence;       /* a microbatch is a sequence, whose loss is kept apart and whose gradient has a factor */
    struct loss_scale_config scale;
    struct recipe_config precision; /* which products are computed in fewer bits */
    int64_t exponents_every;        /* steps (exponents.h); 0: never */
    bool documents_in_order;        /* of even work for the ranks of cp (layout/document_order.h); wants document_mask,
                                       and nothing that goes by a token's place: no dropout, no capacity of experts */
    struct pieces_rule pieces;      /* what is cut so that tp's messages travel beside products (tape/pieces.c) */
    struct par par;                 /* this rank's place on the mesh; all zero: alone */
    /* This rank's groups (config/ranks.h); NULL: of size 1. Of the hosts: world, workers and host. */
    struct comm *world, *shard, *expert, *replicate, *model_group, *axis[AXIS_N], *cp_inner, *cp_outer;
    struct host_groups host;
    struct pipeline_config pipeline;
    enum codec comm_grad, comm_param; /* how gradients and parameters travel (state/coded.h) */
    /* A parameter server (site/param_server.h): a worker keeps no optimizer state and reduces nothing itself, a server
     * keeps its shard and runs no model. */
    int n_servers, server; /* 0: none; server: which, -1 a worker */
    int batches_ahead;     /* room for so many batches that the trainer prepares ahead, beside the one in work */
    size_t object_bytes;   /* room for pieces of objects that the trainer reads behind addresses; 0: none */
    bool snapshots;        /* room in the host's memory for what this rank writes to a checkpoint (keep/async_save.h) */
    size_t trace_bytes;    /* of the ring that a trace is kept in (engine/trace.h); 0: none is made */
    struct comm *workers; /* a parameter server's workers add up counts and losses over it; NULL: each counts its own */
};

/* This rank's part of a batch: n whole sequences of seq tokens each (cp takes its rows of them; n_trained counts all);
 * host memory, borrowed during the call. n is at most n_microbatches * micro. Sequences that are missing are not
 * trained, so ranks may have parts of different size. */
struct engine_batch {
    union {
        const void *field[BATCH_FIELDS]; /* by the table (model/batch_fields.h); NULL: blank, or not read */
        struct {
            const int32_t *tokens, *targets, *positions, *docs; /* [n, seq]; docs may be NULL without document_mask */
            const float *pixels;                                /* [n, values of a picture] */
            const int32_t *label;                               /* [n] */
            const int32_t *segments;                            /* [n * seq] */
            const float *factor;                                /* [n, seq] with model.by_token, else not read */
            const int32_t *patches;                             /* [n, seq] */
        };
    };
    int64_t n;         /* sequences here; 0: none, this rank only meets the others */
    int64_t first;     /* index of the first sequence in the global batch */
    int64_t n_trained; /* targets (of pictures: labels) of this part that are not -1 */
    int64_t n_padded;  /* places of this part that hold no token of a document; only counted */
};

/* Why a step updated nothing: its gradients were not finite; its loss was not, and so nothing was; the trainer left the
 * batch out, so that it never came here; or no token of the batch is trained, so that there is no loss. */
enum engine_skip { SKIP_NONE, SKIP_GRADIENT, SKIP_LOSS, SKIP_BATCH, SKIP_UNTRAINED };
extern const char *const engine_skips[SKIP_UNTRAINED + 1];

struct engine_report {
    double loss;                  /* nats per trained token; NaN: there is none */
    double nats;                  /* sum */
    double ahead[MTP_DEPTH_MOST]; /* of modules that predict further tokens: nats per token trained there (NaN: none);
                                     not in loss */
    double right;                 /* of pictures: trained ones whose class has the largest logit */
    int64_t tokens;               /* trained tokens of this step, over all ranks */
    int64_t sequences;            /* of the batch, over all ranks: those that exist */
    int64_t pairs[PAIRS_N];       /* that masks show in them, of each kind that the model has */
    int64_t padded;               /* their places that hold no token of a document, over all ranks */
    /* With documents that do not see each other, and ranks of cp: pairs of attention of the busiest rank of cp over the
     * mean of these ranks, in all sequences of the step: as tokens were shared out, and as they would be by position.
     * Else 0. */
    double busiest, busiest_by_position;
    double grad_norm;            /* before clipping */
    double balance_loss, z_loss; /* of the routers, per trained token; not in loss */
    /* Rounds in which rows came to their experts (parallel/waves.h): the mean over all layers' forwards on all ranks,
     * and the most; 0: there were no rounds. */
    double rounds_mean;
    int rounds_most;
    enum engine_skip skip; /* why the step was left out */
    double loss_scale;     /* of this step; 1 without */
};

/* What a rank spends on its own actions, without what it waits for others in them. */
enum engine_spent { ENGINE_FORWARD, ENGINE_BACKWARD, ENGINE_UPDATE, ENGINE_SPENT_N };

/* A stage held by this rank. */
struct engine_stage {
    int index; /* position in the pipeline */
    struct model_stage part;
    struct tape *tape;
    struct program *train, *eval;
    struct cut cut, cut_eval;   /* the parts of the programs that the schedule names */
    int act_class, wgrad_class; /* pools of slabs: stages with slabs of one size (what is away too) share them */
};

struct engine_list {
    struct rank_parts parts; /* of the stages here */
    struct action_list list; /* proved by schedule_check_list */
};

/* Which ranks of the pipeline hold the parameters of the layer asked for last (build_holders). */
struct holders {
    bool asked;
    int layer, n;
    int *rank;
};

struct engine {
    struct engine_config cfg;
    struct device *dev;     /* borrowed */
    struct stream *stream;  /* what computes */
    struct stream *feeding; /* what brings the batch */
    struct event *fed;      /* the batch is here; */
    struct event *used;     /* and nobody reads it any more */
    struct event *decided;  /* a step's words say whether it updates (tally.h) */
    bool knows_words;       /* and the host has them */
    struct kernel_table kernels;
    struct par_run collectives;
    struct away_run putting_away; /* what waits in the host's memory; all zero: nothing does */
    struct param_table params;
    struct store store;
    struct loss_scale scale;
    int64_t left_out;     /* steps so far that updated nothing: optimizers count the others. In checkpoints */
    const double *factor; /* engine_weigh; NULL: none */
    struct recipe_state recipes;
    struct telemetry telemetry;
    struct fallback fallback;
    struct exponents exponents;
    struct exchange exchange;
    struct optim_tools tools; /* of optimizers that have any */
    struct program **update;  /* [units] what of an update is rows; NULL: it is stepped by calls */
    void *update_slot[OPTIM_SLOTS];
    struct reference_weights reference;
    struct copies copies; /* parameters that other stages hold too */
    struct schedule *when, *when_eval;
    struct schedule_peak peak; /* of this rank, from the schedule's checker */
    struct model_stage *parts; /* [when->n_stages] of the whole pipeline */
    struct holders holders;
    struct engine_stage *stage; /* [n_stages] held here, ascending */
    int n_stages;
    struct engine_list all, all_eval;               /* all that this rank does */
    struct itinerary go, go_eval;                   /* the same, buffers assigned */
    struct buffer *act, *wgrad;                     /* slabs, class after class */
    struct buffer *away;                            /* [n_act] what waits elsewhere belongs to a slab of activations */
    int n_act, n_away, n_wgrad, *act_at, *wgrad_at; /* first slab of a class */
    struct buffer *crossing;                        /* [n_crossing] what passes between stages */
    int n_crossing;
    int64_t *ticket; /* by crossing buffer: its last message */
    struct buffer scratch;
    struct buffer room; /* scratch of kernels of whole arrays */
    struct buffer data; /* tokens, targets, positions of the batch's rows here; documents of all its rows */
    struct buffer rope, stat, index, balance;
    struct buffer norm;        /* sums of squares of the gradients (engine/tally.h) */
    struct buffer words;       /* of a step (kernel/words.h) */
    struct buffer known;       /* the host's: where it puts those that it knows */
    struct buffer staging;     /* the host's: the batch as it is in data */
    int64_t sequences, padded; /* of the batch that is fed, over all ranks, as in engine_report; */
    int64_t pairs[PAIRS_N];
    double *shown;                       /* [n_microbatches][PAIRS_N] the share of pairs that masks show (work.h) */
    int64_t given;                       /* sequences of that batch on this rank; the room behind them is blank */
    double busiest, busiest_by_position; /* of that batch, as in engine_report */
    int32_t *marked; /* [sequences][seq] ids of documents with their prefixes marked (layout/document_ids.h); NULL: no
                        prefixes */
    int64_t *order;  /* [sequences][seq] which token stands at each place, of the batch that is fed; NULL: its own */
    struct buffer ahead;         /* the host's, for who trains: batches that are prepared ahead (data/prefetch.h) */
    struct buffer objects;       /* the same: pieces of objects behind addresses (remote/remote.h) */
    struct snapshot snapshot;    /* what this rank writes to a checkpoint, */
    struct buffer snapshot_room; /* and the host's memory for it; dev NULL: there is none */
    /* The host's: what it must know of a step, stat, balance, norm and words; one wait brings it (engine/tally.h). */
    struct buffer told;
    double *load; /* balance of the last step over all ranks, layer after layer (engine/balance.h) */
    void **slot;  /* bindings for the programs */
    int n_slots;
    uint8_t *written;     /* by slot: gradients that hold something */
    struct engine_place { /* for another thread (engine_doing) */
        _Atomic int64_t step;
        _Atomic(const struct itinerary *) list; /* NULL: no step was begun */
        _Atomic int64_t row;                    /* of the list, from 1; 0: between */
        struct program_place program;
    } place;
    double spent_s[ENGINE_SPENT_N];  /* in training, since it was made */
    struct program_profile *profile; /* NULL, or filled by every step */
    struct buffer trace_ring;        /* the host's */
    struct trace *trace;             /* NULL, or where events go; borrowed */
    /* NULL, or called after every instruction of steps and evaluations. A window; tutti verify repeats routers' choices
     * through it. */
    void (*watch)(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i);
    void *watch_ctx;
    /* NULL, or called in engine_step when the gradients are made, before anything follows from them; it may compute
     * gradients of other batches (train/witness.h). */
    void (*before_update)(void *ctx);
    void *before_update_ctx;
};

/* Tokens of a sequence that this rank holds: all, but for context parallelism. */
int64_t engine_seq_here(const struct engine *g);
/* Elements of what one stage hands to the next: this rank's tokens of a microbatch. */
int64_t engine_crossing(const struct engine *g);

int engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e);
/* What engine_new makes on paper: parameters, schedule, stages and the store, but no programs. Such an engine says who
 * holds what, and cannot step. d is a device that only counts. Local. */
int engine_new_paper(struct engine **out, const struct engine_config *c, struct device *d, struct err *e);
void engine_free(struct engine *g);
/* Initial weights from the seed. */
void engine_init(struct engine *g);

/* Forward and backward of the whole batch; gradients stay in the store. */
void engine_gradients(struct engine *g, const struct engine_batch *b, int64_t step, struct engine_report *r);
/* engine_gradients, then the update with the given learning rate. Where the loss or the norm is not finite there is no
 * update. Without a loss scale the call then returns false, and the caller decides what that means. With a loss scale
 * the scale falls, r->skip says why, and the call returns true: the step counts as done. Where the scale would fall
 * below its least value it stays as it is, and the call returns false. A batch without a trained token is left out
 * (r->skip), and that is no failure: true. */
bool engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr, struct engine_report *r);
/* Whether a batch had no token that is trained. Same(all ranks). */
bool engine_untrained(const struct engine *g, const struct engine_report *r);
/* A step passes by without an update, and *r says so. Same(all ranks). */
void engine_leave_out(struct engine *g, struct engine_report *r, enum engine_skip why);
/* Loss of a batch, dropout off. */
void engine_evaluate(struct engine *g, const struct engine_batch *b, struct engine_report *r);
/* With by_sequence, after engine_evaluate or engine_gradients: nats of each sequence of the batch, over its trained
 * tokens, of all data-parallel ranks: nats[part * n_microbatches + i] is sequence i of a rank's part; 0 where there is
 * none. The same bits on all ranks. Collective. */
void engine_sequence_nats(struct engine *g, double *nats);
/* With model.by_token, after engine_evaluate, engine_gradients or engine_step: nats of each token of the batch, of all
 * data-parallel ranks: nats[(part * room + i) * seq + p] is place p of sequence i of a rank's part, room its most
 * sequences; 0 where nothing is trained. The same bits on all ranks. Collective. */
void engine_token_nats(struct engine *g, double *nats);
int64_t engine_n_sequences(const struct engine *g); /* how many numbers engine_sequence_nats writes */
/* With by_sequence: what the next steps multiply the gradient of each sequence's nats by; factor[n_microbatches] of
 * this rank's part, borrowed; NULL: 1 / trained tokens, the mean over tokens. Local. */
void engine_weigh(struct engine *g, const double *factor);
/* After a step whose loss or norm was not finite: runs it again and names the first tensor with a NaN or Inf, of the
 * rank nearest to the cause; every rank gets the same words and gives the same n. Collective(world). */
void engine_blame(struct engine *g, const struct engine_batch *b, int64_t step, char *out, size_t n);

/* OK, or what went wrong between the ranks; ask once a step. */
int engine_status(const struct engine *g, struct err *e);
/* Appends where the rank is: "step 12, row 17 of 40 (F2), instruction 57 (linear, forward, 'layers.0.mlp.up')". Any
 * thread while the engine is there. */
void engine_doing(const struct engine *g, struct str *out);

/* Times that stage i of those here is run in a step or, with when_eval, an evaluation. */
int engine_runs(const struct engine *g, const struct schedule *when, int i);
/* FLOPs of one optimizer step on this rank where all sequences exist and no document hides any: what is computed, and
 * without recomputation (as a batch makes them: work.h). */
double engine_flops_step(const struct engine *g);
double engine_flops_model(const struct engine *g);

#endif
