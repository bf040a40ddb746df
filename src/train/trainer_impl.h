/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_impl.h: a rank that trains, and the job that it belongs to, for the files that make them: job.c (all ranks of
 * a process), trainer_open.c (set-up), trainer.c (the loop), between_steps.c (what happens between steps),
 * trainer_async.c (workers and servers that go alone). A function that is Collective is called by all ranks of the
 * world. */
#ifndef TUTTI_TRAIN_TRAINER_IMPL_H
#define TUTTI_TRAIN_TRAINER_IMPL_H

#include "base/fs.h"
#include "base/str.h"
#include "config/changes.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "device/tier.h"
#include "engine/work.h"
#include "config/setup.h"
#include "keep/checkpoint_copies.h"
#include "keep/evals.h"
#include "watch/hang.h"
#include "keep/memckpt.h"
#include "watch/metrics.h"
#include "watch/rank_times.h"
#include "learn/policy.h"
#include "learn/preference.h"
#include "keep/save_retry.h"
#include "keep/async_save.h"
#include "site/param_server.h"
#include "train/signals.h"
#include "site/site.h"
#include "keep/skips.h"
#include "watch/speed.h"
#include "watch/status.h"
#include "watch/tracer.h"
#include "train/trainer.h"
#include "train/witness.h"

/* What all ranks of a process share: the request, the directory, the signals. */
struct job {
    const char *config_path;
    char *config_text; /* of it, read once: what it says later is of another start. NULL: it could not be read */
    size_t n_text;
    char *const *overrides;
    int n_overrides, n_ranks, ranks_here, sharers, least_here, cores_left; /* config.h: parallel */
    struct signals *signals;
    struct hang *hang; /* NULL: nobody looks at a run that hangs */
    struct fs_lock lock;
    bool locked, refused;          /* all ranks know that the request cannot be carried out: nothing to tear down */
    struct trainer_result *result; /* filled by rank 0 */
    /* run.elastic (train/epochs.h); NULL: there is one world, and it ends with its first rank. */
    const struct epoch *epoch;
};

struct trainer { /* one rank */
    struct job *job;
    struct site site;
    bool leads;     /* rank 0: logs, metrics, published checkpoints */
    bool ready;     /* set up, on all ranks: from now on a wish to stop ends with a save */
    int stopped_by; /* the signal that a rank got, agreed on; 0: none */
    struct arena *arena;
    struct config cfg;
    struct conf *conf;
    struct tokenizer *tokenizer;
    struct dataset *train, *valid;
    struct changes_data data; /* of train */
    struct prefetch *feed;
    double waited_s;                   /* of this rank for batches, as far as it was told */
    double data_wait_s, data_waited_s; /* for this step's batch, of the rank that waited longest; of all steps */
    struct staleness stale;
    struct metrics *metrics; /* rank 0 */
    struct {
        bool known;
        uint64_t state;
    } loaded;                             /* the one number of the state that the run goes on from */
    struct tier_counts tier_before, tier; /* when this step began; of this step: bytes of all ranks, the longest wait */
    struct {                              /* of steps from the second on, until it was told what they wait for a disk */
        int64_t steps;
        double waited_s, all_s, bytes;
    } tier_told;
    struct str config_text;
    char *checkpoints, *tokenizer_dir;
    struct lr_config lr;
    struct speed speed;    /* of all ranks together */
    struct work_cost cost; /* of all ranks together */
    double passed_flops;   /* of passes forward before this step */
    int64_t peak_bytes;    /* of the rank that needs most */
    struct tracer tracer;
    struct status *status;   /* rank 0, where run.status_port asks */
    struct rank_times *pace; /* NULL: with a parameter server */
    struct rank_times_step ranks_took;
    struct witness *witness;          /* NULL: nobody looks twice */
    int64_t step, tokens;             /* done */
    struct save_retry retry;          /* of saving */
    struct memckpt memory;            /* checkpoints in memory */
    struct skips skips;               /* steps whose batch is left out, and the average of the loss */
    struct reference reference;       /* of train.objective: dpo */
    struct preference_sums preferred; /* of this step */
    uint64_t began;                   /* state_of_weights of the reference that the engine keeps */
    struct policy *policy;            /* of train.objective: grpo; NULL: none */
    bool told_untrained;              /* that a step had no token to train */
    bool put_off;                     /* a signal came before this step's answers were there: it was not begun */
    struct evals evals;               /* what evaluations have come to */
    uint64_t name;                    /* of the run (run_name.h), the same on all ranks */
    struct copies *copies;            /* rank 0, where checkpoint.copy_to asks */
    struct copies_found found;        /* what it found there before the run went on */
    bool rewinds;                     /* it is over: the run goes back, and is opened again */
    bool back;                        /* it was opened again; */
    int64_t back_saved;               /* and this is the step of its newest checkpoint on disk, -1 none */
    int64_t saved;                    /* step of the newest checkpoint, -1 none */
    struct async_save *saving;        /* a save beside the steps; NULL: none. On all ranks, or none */
    bool saves_there;                 /* a rank was busy with it when they last met */
    bool save_time;                   /* and checkpoint.every_s had passed */
    double save_from_s;               /* when the last save was begun */
    int64_t compared;                 /* step after which replicas were compared last */
    double started_s;
    int64_t started_step;
    double valid_loss;
};

/* All steps are done, or evaluations ended the run. */
static inline bool trainer_is_finished(const struct trainer *t)
{
    return t->step >= t->cfg.run.steps || evals_over(&t->evals);
}
static inline bool trainer_serves(const struct trainer *t) { return t->site.ranks.server >= 0; }
static inline bool trainer_pushes(const struct trainer *t) { return t->site.serve && !trainer_serves(t); }
static inline bool trainer_is_async(const struct trainer *t)
{
    return t->site.serve && t->cfg.parallel.server_mode == SERVER_ASYNC;
}

/* What this rank has waited for batches since it was asked last. */
static inline int64_t trainer_waited_ns(struct trainer *t)
{
    double now = t->feed ? prefetch_waited_s(t->feed) : 0, more = now - t->waited_s;
    t->waited_s = now;
    return (int64_t)(1e9 * more);
}

/* A rank's part of a batch, for the engine; borrows from b. */
static inline struct engine_batch trainer_view(const struct batch *b, int64_t first)
{
    struct engine_batch v = {.n = b->n_seqs, .first = first, .n_trained = b->n_trained, .n_padded = b->n_padded};
    for (int f = 0; f < BATCH_FIELDS; f++) v.field[f] = b->field[f];
    return v;
}

/* ---- job.c ---- */
/* run.dir is this process's, and stays it until fs_lock_release. Local. */
int job_take_directory(struct job *j, const struct config *c, const struct conf *f, struct err *e);
/* Hosts and ranks have different cores; what follows from them for all is decided by the least. Collective(launched).
 */
int job_same_cores(struct job *j, struct comm *launched, struct config *c, struct err *e);
/* Ranks of c that wait too long have all stacks written into c->dump_dir first. Local. */
void job_watch_hangs(const struct job *j, struct comm_config *c);
/* What the config says for this many ranks, complete. *t: the tokenizer, the caller frees it. Same(job). */
int job_read_config(struct job *j, struct config *c, struct conf **f, struct arena *a, struct tokenizer **t,
                    struct err *e);
/* A rank's life, a comm_run_local_fn: open, loop, close; rank 0 fills the job's result. Collective. */
int trainer_rank(struct comm *world, void *arg, struct err *e);

/* ---- trainer_open.c ---- */
/* Everything a step needs. Collective; close it in any case. */
int trainer_open(struct trainer *t, struct job *j, struct comm *world, struct err *e);
int trainer_close(struct trainer *t, struct err *e);
/* A decision of all ranks: an error on one is an error on all. During the set-up a wish to stop is one. Collective. */
int trainer_together(struct trainer *t, int rc, struct err *e);
/* ERR_SIGNAL when this rank got a signal. Local. */
int trainer_stop_here(const struct trainer *t, const char *during, struct err *e);

/* ---- between_steps.c ---- */
/* Ranks that must hold the same numbers do, or the run ends before anything of them is published. Workers of an
 * asynchronous server go ways of their own. Collective. */
int trainer_compare(struct trainer *t, struct err *e);
/* Whether an evaluation follows the steps that are done. Local, the same on all ranks. */
bool trainer_evaluates(const struct trainer *t);
/* The mean loss of the validation text to t->valid_loss, and what t->evals learns of it; nothing of that where a signal
 * ends it early. Collective. */
int trainer_validate(struct trainer *t, struct err *e);
/* The error of a step whose numbers are not finite. b: the batch, to look for the first tensor; NULL on servers. */
int trainer_not_finite(struct trainer *t, const struct engine_batch *b, const struct engine_report *r, double lr,
                       struct err *e);
/* What a step did, to metrics and the terminal; rank 0 only. Local. */
int trainer_report(struct trainer *t, const struct engine_report *r, double lr, double step_s, struct err *e);

/* ---- trainer_save.c ---- */
/* What a checkpoint of now is, on disk or in memory. Local. */
struct save_info trainer_save_info(const struct trainer *t);
/* What to do about a state that is not worth saving (ERR_NUMERIC of a save), added to its text. Local. */
void trainer_diverged(const struct trainer *t, struct err *e);
/* After a step: whether it is to be saved. Collective. */
bool trainer_save_due(struct trainer *t);
/* checkpoint.every_s has passed: of rank 0, for the others to learn. Local. */
bool trainer_save_time(const struct trainer *t);
/* Saves, or begins to (checkpoint.async). One that fails is tried again: later, or, where nothing else is to be done
 * (waits), until it is over. Collective. */
int trainer_save(struct trainer *t, bool waits, struct err *e);
/* After trainer_save of a step, where it was due: whether the best one of evaluations is there, or being written.
 * Local, the same on all ranks. */
void trainer_save_settle(struct trainer *t);
/* When the run is finished: the mean of the newest checkpoints (checkpoint.average). Collective. */
int trainer_average(struct trainer *t, struct err *e);
/* Goes on with a save beside the steps where no rank is busy with it; waits until it is over. A failure that is to be
 * tried again is OK. Collective. */
int trainer_save_poll(struct trainer *t, struct err *e);
int trainer_save_end(struct trainer *t, struct err *e);

/* ---- trainer_memory.c ---- */
/* Loads the newest checkpoint in memory where it is as new as `disk` (NULL: none), or newer, and sets step and tokens;
 * *loaded: it did. One that is damaged is said, with what is used instead; one that is whole and that the config, as it
 * was changed, cannot go on from is ERR_REQUEST. Collective. */
int trainer_memory_load(struct trainer *t, const struct ckpt *disk, bool *loaded, struct err *e);
/* The run goes on from what a person chose: memory begins anew. Collective. */
int trainer_memory_begin(struct trainer *t, struct err *e);
/* Saves into memory when it is due; one that fails for lack of room is said, and the run goes on. Collective. */
int trainer_memory_save(struct trainer *t, struct err *e);
/* All that c holds into the engine, when it is of this run. Collective. */
int trainer_load(struct trainer *t, struct ckpt *c, const char *root, int rc, struct err *e);
/* ---- trainer_begin.c ---- */
/* What the run goes on from, or begins with, and which run it is. Collective. */
int trainer_open_weights(struct trainer *t, struct err *e);
/* Copies of its checkpoints elsewhere, from now on. Collective. */
int trainer_open_copies(struct trainer *t, struct err *e);

/* ---- trainer_rewind.c ---- */
/* The list of run.skip and of the run's directory; what a checkpoint brings is added to it. Collective. */
int trainer_open_skips(struct trainer *t, struct err *e);
/* Whether the step at hand is left out; its report then. Local, the same on all ranks. */
bool trainer_skips(const struct trainer *t);
void trainer_skip(struct trainer *t, struct engine_report *r);
/* After a step, before it counts: OK, and t->rewinds when the run goes back; the error that ends it. Collective. */
int trainer_judge(struct trainer *t, const struct engine_batch *b, const struct engine_report *r, bool finite,
                  double lr, struct err *e);

/* ---- trainer_tier.c ---- */
/* Around a step's work, where something waits on disk: nothing that was read there is other than what was written, on
 * any rank, and what was moved is counted. tier_end is Collective; beside a tier there are no servers. */
void trainer_tier_begin(struct trainer *t);
int trainer_tier_end(struct trainer *t, struct err *e);
/* Warns, once, where steps wait for the disk for more than a tenth of their time. Rank 0, after a step. Local. */
void trainer_tier_judge(struct trainer *t, double step_s);

/* ---- trainer_rank_times.c ---- */
int trainer_pace_open(struct trainer *t, struct err *e);
/* After a step that took step_s here: who is slow is said, and t->ranks_took is filled. Collective. */
int trainer_pace(struct trainer *t, double step_s, struct err *e);

/* ---- trainer_preference.c ---- */
bool trainer_prefers(const struct trainer *t); /* train.objective: dpo */
/* Once weights are there: the reference's log-probabilities, taken before the first step or read again. Collective. */
int trainer_preference_open(struct trainer *t, struct err *e);
/* engine_step on pairs; r->loss and t->preferred are theirs. Collective. */
bool trainer_preference_step(struct trainer *t, const struct engine_batch *b, double lr, struct engine_report *r);
/* Batch i of an evaluation of `most` batches: adds to *s. Collective. */
void trainer_preference_measure(struct trainer *t, const struct engine_batch *b, int64_t i, int64_t most,
                                struct preference_sums *s);

/* ---- trainer_policy.c ---- */
bool trainer_rewards(const struct trainer *t); /* train.objective: grpo */
/* The prompts, in place of a dataset. Local. */
int trainer_policy_data(struct trainer *t, struct err *e);
/* Room for answers, once the engine and what writes them are there. Local. */
void trainer_policy_open(struct trainer *t);
void trainer_policy_close(struct trainer *t);
/* The batch of the step at hand: answers and their rewards, new ones or those at hand. t->put_off: there is none.
 * Collective. */
int trainer_policy_batch(struct trainer *t, struct engine_batch *b, struct err *e);
/* engine_step on it; r->loss is the policy's. Collective. */
bool trainer_policy_step(struct trainer *t, const struct engine_batch *b, double lr, struct engine_report *r);
/* Whether the batch of answers at hand is that of the next step too: nothing is saved then. Local, the same on all
 * ranks. */
bool trainer_policy_amid(const struct trainer *t);
/* What the step was, where it is asked for; before it counts. Rank 0. Local. */
int trainer_policy_tell(struct trainer *t, struct err *e);
const struct policy_sums *trainer_policy_sums(const struct trainer *t);
int64_t trainer_policy_prompts(const struct trainer *t); /* that there are */
int64_t trainer_policy_tokens(const struct trainer *t);  /* of all of them */

/* ---- trainer_witness.c ---- */
/* Where run.replay_every asks for it. Collective. */
int trainer_witness_open(struct trainer *t, struct err *e);
bool trainer_witness_due(const struct trainer *t);
/* engine_step, witnessed. Collective. */
int trainer_witness_step(struct trainer *t, const struct engine_batch *own, double lr, struct engine_report *r,
                         bool *finite, struct err *e);

/* ---- trainer_async.c ---- */
/* Steps until the run is over, without a common step: from one meeting to the next. Collective. */
int trainer_loop_async(struct trainer *t, struct err *e);

#endif
