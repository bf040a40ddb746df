/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h: one view of what a user calls CHECKPOINT: a tutti checkpoint, a root or run of them, or a Hugging
 * Face directory.
 * Order: Local.
 */
#ifndef TUTTI_HUB_WEIGHTS_H
#define TUTTI_HUB_WEIGHTS_H

#include "checkpoint/ckpt.h"
#include "hub/hf.h"

struct weights;
int weights_open(struct weights **w, const char *path, struct err *e);
/* The same; keys of a Hugging Face config.json that a person named are passed over where they would be refused. */
int weights_open_ignoring(struct weights **w, const char *path, const struct hf_ignore *ignore, struct err *e);
void weights_close(struct weights *w);
struct ckpt *weights_ckpt(const struct weights *w); /* borrowed; NULL: a Hugging Face directory */
const char *weights_path(const struct weights *w);
/* What the model is: config.json, or the manifest's extra.model. ERR_REQUEST when the checkpoint does not say. */
int weights_model(const struct weights *w, struct hf_model *m, struct err *e);
/* A file that goes with the weights (tokenizer.json, ...), whole, NUL-terminated; xfree *text. A checkpoint's was
 * compared with its checksum; a Hugging Face directory has none. Not there: OK, *text NULL. */
int weights_file(const struct weights *w, const char *name, char **text, size_t *n, struct err *e);

int64_t weights_count(const struct weights *w);
/* With those behind them: matrices that a checkpoint has in few bits (packed_read.h), as numbers. */
int64_t weights_count_all(const struct weights *w);
struct ckpt_entry weights_at(const struct weights *w, int64_t i); /* names borrowed until weights_close */
int64_t weights_find(const struct weights *w, const char *group, const char *name); /* -1: none */
/* From here on a parameter's values are those of its average (optimizer.ema); fails where there are none. */
int weights_average(struct weights *w, struct err *e);
/* A parameter's values, in the form that training goes on from: group "master" where there is one, else "param". */
int64_t weights_find_param(const struct weights *w, const char *name); /* -1: none */
/* The element type the model was made for: as stored, or what training computed in. */
enum dtype weights_dtype(const struct weights *w);
/* From now on weights_read gives matrices with what the checkpoint's adapters add to them; without adapters nothing
 * changes. ERR_REQUEST: adapters of a kind that this program does not know. */
int weights_merge(struct weights *w, struct err *e);
/* The same with the adapters of a folder that peft saved, and not with the checkpoint's own; dir NULL: with none. */
int weights_attach(struct weights *w, const char *dir, struct err *e);
int weights_read(struct weights *w, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e);
/* How long rows [first, first + n) of a matrix are, as weights_read gives them: a row at a time. */
int weights_lengths(struct weights *w, int64_t i, int64_t first, int64_t n, double *out, struct err *e);
/* Bytes [offset, offset + bytes) of a box of tensor i, row-major, in the type it is stored in; whole elements. What a
 * writer asks for piece by piece (ckpt_access), so that neither side holds a model. */
int weights_range(struct weights *w, int64_t i, const struct region *box, int64_t offset, size_t bytes, void *dst,
                  struct err *e);
/* All elements of tensor i as doubles, in order, in pieces: fn sees each once. Floating-point tensors only. */
typedef void weights_scan_fn(void *ctx, const double *x, int64_t n);
int weights_scan(struct weights *w, int64_t i, weights_scan_fn *fn, void *ctx, struct err *e);

#endif
