/* SPDX-License-Identifier: Apache-2.0 */
/* hf.h: models in the form of Hugging Face: config.json, *.safetensors, tokenizer.json, in and out.
 *
 * The mapping between their tensors and ours is one table per family (hf_names.c): a name for a name, and for
 * GPT-2 a transposition (its Conv1D keeps [in, out], ours is [out, in]) and the cutting of fused q, k, v. The
 * rotary convention (halves, not pairs) is the same on both sides. Reading and writing are lazy, a box or a band
 * of rows at a time: memory does not depend on the size of the model.
 *
 * What tutti cannot compute is refused when the config is read, by the name of its key, never ignored.
 * Includes: base, layout, model. Order: Local.
 */
#ifndef TUTTI_HUB_HF_H
#define TUTTI_HUB_HF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "layout/dtype.h"
#include "layout/region.h"
#include "model/numbers.h"

const char *hf_family_name(
    enum hf_family f); /* "gpt2", "llama", "mixtral", "deepseek_v3": also config.json's model_type */

#define HF_EOS 8
struct hf_model {
    enum hf_family family;
    struct model_config model;               /* moe.groups 0 where all experts are one group */
    double embed_dropout, attention_dropout; /* beside model.dropout, which in GPT-2 is after each block's halves */
    double init_std;
    int64_t bos, eos[HF_EOS]; /* token ids; bos -1: none */
    int n_eos;
    int64_t start; /* of encoder and decoder: what the decoder reads first */
    int64_t pad;   /* what fills up short texts in their batches; -1: none */
};
/* The output matrix becomes one of its own, and what goes into it stays what it was. */
void hf_untie(struct hf_model *m);
struct hf_model hf_model_default(
    enum hf_family f); /* what a file that says nothing means: numbers it has to say are 0 */

/* -- config.json -------------------------------------------------------------------------------------------- */

/* Keys that a person said do not matter (model.ignore): passed over where they would be refused. */
struct hf_ignore {
    const char *const *keys;
    int n;
};
/* what: the file in errors; ignore: NULL: none. ERR_REQUEST names the key that is unknown to tutti or does not fit. */
int hf_config_parse(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                    struct err *e);
int hf_config_read(struct hf_model *m, const char *dir, const struct hf_ignore *ignore,
                   struct err *e); /* dir/config.json */
/* The object of config.json as a member (key NULL: the root). A checkpoint's manifest carries the same object as
 * extra.model, so that it can be exported and used without the config it was trained from. */
/* Whether their code for this model_type computes this model: DeepSeek's does not know every router that tutti does. */
int hf_config_expressible(const struct hf_model *m, struct err *e);
void hf_config_put(struct json_out *o, const char *key, const struct hf_model *m, enum dtype dtype);

/* -- names -------------------------------------------------------------------------------------------------- */

/* One of our parameters and where it lies among theirs: ours[o, i] = theirs[first + i, offset + step * o] when
 * transposed (a vector: i is 0), else ours[o, ...] = theirs[offset + o, ...]. */
struct hf_param {
    char name[80];
    struct shape shape;
    char theirs[96]; /* without the prefix "transformer." or "model." when `prefixed` */
    bool prefixed;
    struct shape their_shape; /* as rows and columns of one matrix, */
    struct shape file_shape;  /* and as their file has it: other dims of as many elements */
    bool transposed;
    int64_t offset;
    int64_t first, step; /* transposed: of the matrices of all experts one after the other, this one's first row; and
                            how far apart its columns are */
};
int64_t hf_n_params(const struct hf_model *m);
struct hf_param hf_param_at(const struct hf_model *m, int64_t i); /* parts of one fused tensor are neighbours */
/* A tensor that files may hold and that is no parameter (masks, rotary frequencies, a tied head). */
bool hf_is_ignored(const struct hf_model *m, const char *theirs);
/* Tables that a module for further tokens has in their files once more, under "model.layers.N.", and which of ours. */
enum { HF_MTP_COPIES = 2 };
extern const char *const hf_mtp_copies[HF_MTP_COPIES][2];
const char *hf_prefix(enum hf_family f); /* "transformer.", "model." */

/* -- reading ------------------------------------------------------------------------------------------------ */

struct hf;
/* Opens config and weights, and checks that every parameter is there with its shape and that nothing is left
 * over: ERR_REQUEST lists the first that differ. */
int hf_open(struct hf **h, const char *dir, const struct hf_ignore *ignore, struct err *e);
void hf_close(struct hf *h);
const struct hf_model *hf_model_get(const struct hf *h);
const char *hf_path(const struct hf *h);
int64_t hf_find(const struct hf *h, const char *name); /* index of parameter, or -1 */
enum dtype hf_dtype(const struct hf *h, int64_t i);    /* as stored */
/* Fills dst with a box of parameter i, converted to `as`. */
int hf_read(struct hf *h, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e);
/* The files that go with the weights, NULL at the end: tokenizer.json first, then what says how it is used (chat
 * templates too). They are attached to checkpoints as they are, and exported again. */
extern const char *const hf_beside[];
enum { HF_BESIDE = 9 };

/* -- writing ------------------------------------------------------------------------------------------------ */

/* Gives a box of one of our parameters as elements of type `as`. */
typedef int hf_get_fn(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e);
/* Gives a file that goes with the weights, whole (xfree *text); *text NULL: there is none. */
typedef int hf_file_fn(void *ctx, const char *name, char **text, size_t *n, struct err *e);
#define HF_SHARD_BYTES 5000000000 /* their own limit for one file */
struct hf_export {
    const struct hf_model *model;
    enum dtype dtype; /* f32, bf16 or f16 */
    hf_get_fn *get;
    hf_file_fn *file; /* tokenizer.json and what goes with it are passed along; NULL: none */
    void *ctx;
    int64_t shard_bytes; /* 0: HF_SHARD_BYTES */
};
/* Writes the directory whole or not at all; it must not exist or be empty. */
int hf_export(const char *dir, const struct hf_export *x, struct err *e);

#endif
