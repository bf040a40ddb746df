/* SPDX-License-Identifier: Apache-2.0 */
/* run_checkpoint.h: a run's checkpoints: what of the engine is written, and read back. The checkpoint room knows files
 * and boxes; this one knows that the store is a table of arrays, and which rank writes what.
 *
 * Groups are the names of the arrays that are saved (state/array.h): "master" (fp32 truth), "m" and "v" (AdamW) or "m"
 * (SGD with momentum), and whatever a row adds. The compute copy is not written: it follows from the master. Attached:
 * config.yaml, tokenizer.json, tokenizer_config.json. Every rank of dp_shard writes its pieces, whatever the zero
 * level; replicas write nothing. Any layout reads what any layout wrote. Floor 8. Order: Collective over all ranks.
 */
#ifndef TUTTI_KEEP_RUN_CHECKPOINT_H
#define TUTTI_KEEP_RUN_CHECKPOINT_H

#include "checkpoint/ckpt.h"
#include "config/changes.h"
#include "engine/engine.h"
#include "base/str.h"
#include "config/ranks.h"
#include "keep/evals.h"
#include "keep/skips.h"

struct save_info {
    const char *root;     /* run.dir/checkpoints */
    int64_t step, tokens; /* done so far */
    int64_t keep, keep_every;
    uint64_t run;              /* its name */
    bool incremental;          /* what stands still is linked (checkpoint/unchanged.h) */
    const char *config_text;   /* resolved config.yaml */
    const char *tokenizer_dir; /* holds tokenizer.json and what goes with it (companions.h); NULL: none */
    const struct config *cfg;  /* for what model.from says of the ends of texts; NULL: nothing */
    int32_t bos, eos;
    struct changes_data data;
    const struct skips *skips;  /* NULL: none */
    const struct evals *evals;  /* NULL: none */
    const uint64_t *reference;  /* of the weights that the run is held to (train.grpo.beta); NULL: it is not */
    const atomic_llong *in_use; /* of ckpt_info */
    struct ckpt_told *told;     /* filled on rank 0 by a save that all wait for; NULL: nobody asks */
};
/* Saves while all ranks wait for it; beside the steps: async_save.h. Fails with ERR_NUMERIC, and nothing is written,
 * when the state is not worth publishing (health.h). */
int save_checkpoint(const struct engine *g, const struct ranks *r, const struct save_info *s, struct err *e);
/* This rank's files, all of them or what changed, as info says. Local. */
int save_rank(const struct ckpt_info *info, const char *root, int rank, const struct ckpt_tensor *t, int64_t n,
              struct err *e);
/* ---- of a save, for who takes its steps one by one (async_save.h) ---- */

/* What a checkpoint has beside tensors. Its texts are its own but for config_text, which outlives it. */
struct save_words {
    struct ckpt_info info;
    struct ckpt_told told; /* of rank 0, when it is published */
    struct ckpt_attachment file[1 + HF_BESIDE];
    char *path[HF_BESIDE];
    struct str extra;
};
void save_words_make(struct save_words *w, const struct engine *g, const struct save_info *s);
void save_words_free(struct save_words *w);
/* ERR_NUMERIC on all ranks when the state of one is not worth publishing. Collective. */
int save_is_worth(const struct engine *g, const struct ranks *r, int64_t step, struct err *e);
/* What this rank writes: where it is, or in a snapshot of it that lies at `memory`. Free with save_forget. Local. */
int64_t save_describe(const struct engine *g, const void *memory, struct ckpt_tensor **out);
void save_forget(struct ckpt_tensor *t, int64_t n);
/* After one rank's failure: what it left is removed, and *e says on all ranks what happened and what is still there.
 * Collective. */
int save_abort(const struct engine *g, const struct ranks *r, const char *root, int64_t step, int rc, struct err *e);

/* Whether c holds this model and its arrays: names, shapes and types; attachments are compared with their checksums.
 * root (may be NULL): where an error looks for one that does. Local. */
int save_check(const struct engine *g, const struct ckpt *c, const char *root, struct err *e);
/* needs[file] of c: this rank reads some of it for itself, wherever the others may read it (arrays that wait in another
 * memory). Local. */
void save_needs(const struct engine *g, const struct ckpt *c, uint8_t *needs);
/* The state of a checkpoint that was checked, every byte of it read once by one of the ranks (engine/readers.h), and
 * the compute copy of it; whole copies of shared state are completed by the others. root: where the words of an error
 * look for another checkpoint (resume_advise), NULL nowhere. said (may be NULL): what was read by whom. A failure of
 * one rank, also the rc that it brings, is everybody's, before anything of what it read is sent. Collective(world),
 * with the workers of a parameter server. */
int save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e);

#endif
