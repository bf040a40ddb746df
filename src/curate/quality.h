/* SPDX-License-Identifier: Apache-2.0 */
/* quality.h: how likely a text is of the good kind: logistic regression over hashed n-grams of words.
 *
 * Words (in lower case, marks alone: WORDS_MARKS) and their n-grams fall into 2^bits buckets by their hash. A text is
 * the vector of 1 + log(count) by bucket, of length 1. Trained by AdaGrad over a fixed shuffle on one thread: the same
 * files give the same bits. Probabilities are calibrated on texts held out of training (Platt, "Probabilistic outputs
 * for support vector machines", 1999), and the quality is told on others that were held out, too.
 * Includes: base, document.h, model_file.h. Order: Local; any number of threads may ask one model.
 */
#ifndef TUTTI_CURATE_QUALITY_H
#define TUTTI_CURATE_QUALITY_H

#include "base/err.h"
#include "base/str.h"
#include "curate/document.h"

enum { QUALITY_VERSION = 1, QUALITY_GRAMS = 5, QUALITY_BITS = 24, QUALITY_WORDS = 20000 };

struct quality_model;
int quality_parse(struct quality_model **m, const void *p, size_t n, const char *what, struct err *e);
int quality_read(struct quality_model **m, const char *path, struct err *e);
void quality_free(struct quality_model *m); /* NULL is fine */
/* Of a document's first QUALITY_WORDS words; 0 to 1. */
double quality_of(const struct quality_model *m, struct document *d);

/* A text as its buckets, in order, and their numbers. */
struct features {
    uint64_t *bucket;
    float *value;
    size_t n;
};
/* The features of the document, in its own memory (document_hashes, document_numbers): until their next call. */
struct features quality_features(struct document *d, int grams, int bits);

/* -- training ----------------------------------------------------------------------------------------------- */

struct quality_trainer;
struct quality_trainer *quality_trainer_new(int grams, int bits, int64_t most_documents);
void quality_trainer_free(struct quality_trainer *t);
/* What is more than most_documents of a kind is left out, by its bytes' hash: a fair choice. */
void quality_trainer_feed(struct quality_trainer *t, bool positive, struct document *d);
struct quality_result {
    int64_t positive, negative;         /* documents that were learnt from or held out */
    int64_t tested;                     /* of these: held out of training and calibration */
    double accuracy, precision, recall; /* of the tested, at 0.5 */
    double log_loss, area;              /* nats a document; under the curve of rates (AUC) */
    double calibration;                 /* mean distance of probability and rate over ten bins (ECE) */
};
int quality_trainer_finish(struct quality_trainer *t, int epochs, struct str *out, struct quality_result *r,
                           struct err *e);

#endif
