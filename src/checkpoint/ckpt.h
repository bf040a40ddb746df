/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.h: checkpoints that know no layout, are published whole or not at all, and can be checked.
 *
 * A checkpoint is a directory step-00000500 below a root (run.dir/checkpoints): safetensors files with boxes of
 * global tensors, attached files (config.yaml, tokenizer.json), and manifest.json that lists and seals them all.
 * Ranks write the boxes they hold; a reader asks for any box of any tensor.
 *
 *   save     begin (one rank) -> rank (every rank, own file) -> publish (one rank, after all)
 *   states   .tmp-step-N  being written        any moment: leftovers of a crash, removed by ckpt_clean
 *            step-N       published            complete; its last byte was synced before it got this name
 *            .trash-*     being removed
 *            latest       a link to the newest published one
 *            best         a link to the one that the run's evaluations found best (ckpt_set_best)
 *
 * Invariants
 *   1. A directory named step-* is complete: every file synced, then the directory, then renamed.
 *   2. A failed or killed save changes no published checkpoint; older ones are removed after publication only.
 *   3. Every byte is under a checksum; what ckpt_read and ckpt_attachment return was compared with it.
 *   4. What cannot be read is never removed or replaced: it keeps its name, or is moved aside.
 *   5. What is another run's is neither counted nor removed by `keep`.
 * The caller holds the run's lock: one process at a time saves below a root.
 * Includes: base, layout. Order: Local unless said otherwise; ranks agree through the caller.
 */
#ifndef TUTTI_CHECKPOINT_CKPT_H
#define TUTTI_CHECKPOINT_CKPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/held.h"
#include "base/json.h"
#include "layout/dtype.h"
#include "layout/region.h"

/* Memory that the host cannot reach directly. offset and bytes count from the start of the tensor's box. */
struct ckpt_access {
    int (*to_host)(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e);
    int (*from_host)(void *ctx, int64_t offset, size_t bytes, const void *src, struct err *e);
};

/* The part of a global tensor that this rank holds, for saving and for loading. */
struct ckpt_tensor {
    const char *group; /* "param", "master", "m", "v", ... */
    const char *name;  /* "layers.0.attn.q.weight" */
    enum dtype dtype;
    struct shape shape; /* global */
    struct region box;  /* held here; may be empty */
    void *p;            /* the box in host memory, row-major; NULL when access is set */
    const struct ckpt_access *access;
    void *ctx;
};

/* A file that travels with the checkpoint: its bytes, or the path to copy from. */
struct ckpt_attachment {
    const char *name; /* "config.yaml" */
    const void *p;
    size_t bytes;
    const char *copy_from; /* p is NULL */
    bool private;          /* for its owner's eyes only */
};

/* What was published. */
struct ckpt_told {
    bool has_state;
    uint64_t state;        /* one number for it, the same for every layout (docs/checkpoint-format.md) */
    int64_t bytes, linked; /* of files; of these what an older checkpoint has, too */
};

struct ckpt_info {
    int64_t step;   /* optimizer steps done */
    int64_t tokens; /* trained so far */
    int64_t seed;
    uint64_t run;      /* the name of the run (keep/run_name.h); 0: none */
    const char *extra; /* JSON text of an object: positions, and "model" (hf_config_put in hf.h); NULL: none */
    const struct ckpt_attachment *attachments;
    int n_attachments;
    int keep;           /* published checkpoints to keep, this one included, beside the best; 0: all */
    int64_t keep_every; /* and all whose step is a multiple of this; 0: none beside those */
    bool incremental;   /* ckpt_save, and who calls ckpt_save_rank_since: what stands still is linked */
    /* Of a checkpoint whose files lie on several hosts (keep/memckpt.h), each of which publishes what it has: */
    bool parted; /* the files of some ranks are elsewhere; a directory of this step is replaced, whatever it is */
    int64_t publication;        /* which one it is, the same on all hosts; 0: the next one below root */
    const atomic_llong *in_use; /* the step of one that is being copied, which stays; NULL: none */
    struct ckpt_told *told;     /* filled by the publishing; NULL: nobody asks */
};

/* -- saving ------------------------------------------------------------------------------------------------- */

/* Gives a checkpoint its name back that a crash caught between two names (ckpt_clean does it too). Call before looking
 * for the newest: nothing is removed. */
int ckpt_recover(const char *root, struct err *e);
/* Removes what crashed saves left below root (which may not exist yet). Call once, when the run starts and has
 * loaded. */
int ckpt_clean(const char *root, struct err *e);
/* One rank: makes root and the temporary directory of this step. */
int ckpt_save_begin(const char *root, int64_t step, struct err *e);
/* Every rank, after begin: writes boxes-RANK.safetensors with the boxes it holds. Over all ranks each element of
 * each tensor must be given exactly once: of several replicas one is saved. */
int ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n, struct err *e);
/* The same, incrementally: of boxes that are, byte for byte, what the newest checkpoint below root has of them, files
 * that hold nothing else are linked instead of written (unchanged.h). written (may be NULL): bytes of this rank's
 * files. */
struct ckpt_written {
    int64_t written, linked;
};
int ckpt_save_rank_since(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                         struct ckpt_written *written, struct err *e);
/* Where a rank's boxes and their list lie until they are published; xfree it. */
char *ckpt_boxes_path(const char *root, int64_t step, int rank);
char *ckpt_list_path(const char *root, int64_t step, int rank);
/* One rank, after all have written: checks that the boxes tile the tensors, writes the manifest, publishes, moves
 * `latest`, removes the oldest beyond `keep`. An error means: not published. */
int ckpt_save_publish(const char *root, int n_ranks, const struct ckpt_info *info, struct err *e);
/* One rank, when any rank failed: removes the temporary directory. e (NULL: nobody asks) holds what failed; added to
 * it are the room there is, the bytes that the checkpoint needs (0: unknown) and which published one is intact. */
void ckpt_save_abort(const char *root, int64_t step, int64_t needed, struct err *e);
/* All of it for one rank. On failure nothing is left behind, and the text says where, how much room there is and
 * that the last published checkpoint is intact. */
int ckpt_save(const char *root, const struct ckpt_info *info, const struct ckpt_tensor *t, int64_t n, struct err *e);

/* For who copies a finished checkpoint file by file (keep/checkpoint_copies.h): ckpt_save_begin, the files below
 * ckpt_temporary (xfree it), each synced, its manifest last, and this: it gets its name, if every byte of it was read
 * and has its checksum. One of that step that can be read is replaced, one that cannot is moved aside.
 *   fails   ERR_CORRUPT, ERR_IO: it is not published; ckpt_save_abort removes what there is */
char *ckpt_temporary(const char *root, int64_t step);
int ckpt_adopt(const char *root, int64_t step, struct err *e);
/* Removes the published one of that step, by way of .trash-*. */
int ckpt_remove(const char *root, int64_t step, struct err *e);
/* Points root/best to the checkpoint of that step, which is published; -1: takes the link away. */
int ckpt_set_best(const char *root, int64_t step, struct err *e);
/* What extra says that the best one was when this was saved ("best": {"step": N, ...}); -1: nothing. Of what the newest
 * names, no checkpoint is removed by `keep`. */
int64_t ckpt_best(const struct json *extra);
/* step-00000500: 500; -1: no name of a checkpoint. */
int64_t ckpt_step_of(const char *name);

/* -- finding ------------------------------------------------------------------------------------------------ */

struct ckpt_listing {
    char *path;
    int64_t step, tokens, bytes;
    int64_t publication; /* -1: its manifest cannot be read */
    uint64_t hash, run;  /* of the manifest; the name of its run, 0: it names none */
    int n_tensors;
    int code; /* OK: complete. ERR_CORRUPT: damaged; ERR_REQUEST: a newer format; ERR_IO: could not be looked at */
    char problem[1000]; /* "" when complete */
};
/* Published checkpoints below root, oldest first (those without a readable manifest before all). A missing root holds
 * none; one that cannot be looked at is ERR_IO. */
int ckpt_list(const char *root, struct ckpt_listing **out, int *n, struct err *e);
void ckpt_list_free(struct ckpt_listing *l, int n);
/* Whether l, one that cannot be used, keeps `best` (the newest that can, NULL: none) from being known to be the newest:
 * its publication is later; that is unknown, and its step is later, or `latest` (a name, or NULL) means it; it could
 * not be looked at at all. */
bool ckpt_in_the_way(const struct ckpt_listing *l, const struct ckpt_listing *best, const char *latest);

/* What is below a root. It is never guessed: one that cannot be used and is, or may be, newer than all that can makes
 * it HELD_UNKNOWN, and so does any that could not be looked at; damaged ones that are certainly older do not. */
struct ckpt_held {
    enum held what;
    struct ckpt_listing newest; /* HELD_KNOWN: that; HELD_UNKNOWN: the newest that can be used; path NULL: none can */
    struct err why;             /* of HELD_UNKNOWN */
};
void ckpt_hold(struct ckpt_held *h, const char *root);
void ckpt_held_free(struct ckpt_held *h);
/* The newest one below root (*path = NULL: there is none; xfree it), where it must be known: HELD_UNKNOWN is an error.
 * Those that are damaged and certainly older are skipped with a warning. On an error *nearest (may be NULL) is the
 * newest that can be used, NULL when none can; xfree it. */
int ckpt_newest(const char *root, char **path, char **nearest, struct err *e);
/* The same, for who has no other way to choose than to name a path. */
int ckpt_find_latest(const char *root, char **path, struct err *e);
/* The checkpoint that a path means: itself, or the newest of a root or of a run directory; xfree *out. */
int ckpt_resolve(const char *path, char **out, struct err *e);
/* After the checkpoint `chosen` of root was loaded because a person said so: what would stop the next ckpt_newest is
 * renamed (step-00000500.aside-1), so that the run that goes on from here can be found. Removes nothing. */
int ckpt_set_aside(const char *root, const char *chosen, struct err *e);

/* -- loading ------------------------------------------------------------------------------------------------ */

struct ckpt;
struct ckpt_entry {
    const char *group, *name;
    enum dtype dtype;
    struct shape shape;
    int n_boxes;
};

/* path: as in ckpt_resolve. The manifest is read and checked, the files' sizes are compared. */
int ckpt_open(struct ckpt **c, const char *path, struct err *e);
/* One whose files lie on several hosts: path is the directory of this one, with the manifest and what is attached;
 * files of boxes may be missing. */
int ckpt_open_parted(struct ckpt **c, const char *path, struct err *e);
void ckpt_close(struct ckpt *c);
/* Its files, and whether the one called ckpt_file_name is here in its full size; HELD_NONE also where it has another
 * size. */
int ckpt_n_files(const struct ckpt *c);
const char *ckpt_file_name(const struct ckpt *c, int file);
const char *ckpt_file_of(const struct ckpt *c, int64_t i, int k); /* that box k of tensor i is in */
/* Whether two checkpoints, by their paths, have one file of that name (ckpt_info.incremental): damaged in one, it is
 * damaged in both. */
bool ckpt_shared(const char *path, const char *other, const char *file);
enum held ckpt_file_here(const struct ckpt *c, int file, struct err *why);
/* Which of n ranks can read which file: sees[file * n + rank], copied. Without this call all can. */
void ckpt_seen_by(struct ckpt *c, const uint8_t *sees, int n);
/* Whether that rank can read the file; its bytes. */
bool ckpt_file_seen(const struct ckpt *c, int file, int rank);
int64_t ckpt_file_bytes(const struct ckpt *c, int file);
/* Whether that rank can read box k of tensor i. */
bool ckpt_sees(const struct ckpt *c, int64_t i, int k, int rank);
const char *ckpt_path(const struct ckpt *c);
int64_t ckpt_step(const struct ckpt *c);
int64_t ckpt_tokens(const struct ckpt *c);
int64_t ckpt_seed(const struct ckpt *c);
int64_t ckpt_publication(const struct ckpt *c); /* which one below its root this is */
uint64_t ckpt_run(const struct ckpt *c);        /* name of the run that saved it; 0: it names none */
uint64_t ckpt_hash(const struct ckpt *c);       /* of the manifest's bytes: equal for the same checkpoint only */
/* One number of the whole state, and of a tensor's values, the same for every layout; false: an older tutti wrote it,
 * which left them out. */
bool ckpt_state(const struct ckpt *c, uint64_t *state);
bool ckpt_tensor_state(const struct ckpt *c, int64_t i, uint64_t *state);
const char *ckpt_writer(const struct ckpt *c);       /* version of the tutti that wrote it */
const struct json *ckpt_extra(const struct ckpt *c); /* NULL: none */
/* The bytes of an attachment, compared with their checksum (NUL-terminated, not counted; xfree *text). Not attached:
 * OK, *text NULL.
 *   fails   ERR_CORRUPT naming the file; ERR_IO, ERR_REQUEST as fs_read_all */
int ckpt_attachment(const struct ckpt *c, const char *name, char **text, size_t *n, struct err *e);
int ckpt_check_attachments(const struct ckpt *c, struct err *e); /* all of them */
int ckpt_n_attachments(const struct ckpt *c);
const char *ckpt_attachment_name(const struct ckpt *c, int i); /* in the writer's order; borrowed */
int64_t ckpt_count(const struct ckpt *c);
struct ckpt_entry ckpt_at(const struct ckpt *c, int64_t i);                   /* in the writer's order */
int64_t ckpt_find(const struct ckpt *c, const char *group, const char *name); /* -1: none */

/* Fills dst (row-major, of the box's extent) with a box of tensor i, converted to `as`. The first touch of a chunk
 * of a stored box (4 MiB; all of it in checkpoints of before there were chunks) reads and compares all of the chunk.
 *   fails   ERR_CORRUPT naming file and tensor, ERR_IO also the offset; ERR_REQUEST when the types do not convert */
int ckpt_read(struct ckpt *c, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e);

/* For ranks that share the reading out, so that every byte is read once by one of them (engine/readers.h): box k of
 * those that tensor i is stored in, and how many of its elements, one behind the other in the box's order, are read at
 * once (some 4 MiB; at the end of the box fewer). *alone: the box has one checksum for more than that, so one rank
 * reads all of it. */
struct region ckpt_box(const struct ckpt *c, int64_t i, int k);
int64_t ckpt_stretch(const struct ckpt *c, int64_t i, int k, bool *alone);
/* Elements [lo, lo + n) of the box, converted to `as`; lo and, but at the end, n are whole stretches. Read once and
 * compared. Fails as ckpt_read. */
int ckpt_read_stretch(struct ckpt *c, int64_t i, int k, int64_t lo, int64_t n, enum dtype as, void *dst, struct err *e);

/* Is this the checkpoint of a model with these tensors (all of them; boxes and memory are not looked at)?
 * ERR_REQUEST lists the first that differ: both shapes, those missing, and, in the groups that are asked for,
 * those that nothing asks for (of other groups than want[0]'s: whose name is not asked for in that group either). A
 * rank that holds a part of the model checks the whole list all the same. */
int ckpt_check(const struct ckpt *c, const struct ckpt_tensor *want, int64_t n, struct err *e);
/* Fills every descriptor's box. Tensors that are missing or of another shape are ERR_REQUEST as in ckpt_check. */
int ckpt_load(struct ckpt *c, const struct ckpt_tensor *t, int64_t n, struct err *e);

/* Reads and compares everything. Each problem is told to `bad`; returns how many there were. */
typedef void ckpt_problem_fn(void *ctx, const char *text);
int64_t ckpt_verify(struct ckpt *c, ckpt_problem_fn *bad, void *ctx);

/* One of its files, attachments too. */
int ckpt_verify_file(struct ckpt *c, int file, struct err *e);
/* All of them, up to the first that is damaged, or cannot be read. */
int ckpt_verify_all(struct ckpt *c, struct err *e);

#endif
