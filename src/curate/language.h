/* SPDX-License-Identifier: Apache-2.0 */
/* language.h: which language a text is in, by its n-grams of characters.
 *
 * Words in lower case, with a space before and behind, are cut into n-grams of 1 to 4 characters (Cavnar and Trenkle,
 * "N-gram-based text categorization", 1994). Of each language the most frequent are known, with how much more likely
 * they are than an n-gram that is not known; what a text's n-grams say is added up (naive Bayes with a floor). The
 * probability is the softmax of the sums by a temperature that fits texts which were held out of training.
 *
 * One model comes with the program (language_table.h); others are trained from the user's files.
 * Includes: base, document.h, model_file.h. Order: Local; any number of threads may ask one model.
 */
#ifndef TUTTI_CURATE_LANGUAGE_H
#define TUTTI_CURATE_LANGUAGE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { LANGUAGE_LABELS = 255, LANGUAGE_LABEL_BYTES = 16, LANGUAGE_VERSION = 1 };

struct language_model;
int language_parse(struct language_model **m, const void *p, size_t n, const char *what, struct err *e);
int language_read(struct language_model **m, const char *path, struct err *e);
struct language_model *language_shipped(void);
void language_free(struct language_model *m); /* NULL is fine */
int language_n_labels(const struct language_model *m);
const char *language_label(const struct language_model *m, int label);
int language_find(const struct language_model *m, const char *label); /* -1: there is none */

struct language_guess {
    int label;          /* -1: nothing in the text is known */
    double probability; /* of the label, of those that the model knows */
    int64_t known;      /* n-grams of the text that some language has */
};
/* Of a text's first LANGUAGE_LOOKS bytes. */
enum { LANGUAGE_LOOKS = 4 << 10 };
struct language_guess language_of(const struct language_model *m, const char *p, size_t n);
/* Sums by label, for training; score has room for all. Returns n-grams that were known. */
int64_t language_scores(const struct language_model *m, const char *p, size_t n, double *score);

/* The n-grams of a text, each as 24 bits: how many characters, less 1 (2 bits), and 22 of its hash. */
void language_n_grams(const char *p, size_t n, void (*each)(void *ctx, uint32_t key), void *ctx);

/* -- training ----------------------------------------------------------------------------------------------- */

struct language_trainer;
struct language_trainer *language_trainer_new(int n_labels, const char *const *labels);
void language_trainer_free(struct language_trainer *t);
/* A text of the label. One line in ten, by its bytes, is held out. */
void language_trainer_feed(struct language_trainer *t, int label, const char *p, size_t n);
struct language_result {
    /* held_out: held-out lines of 20 characters or more; right: how many of them are named rightly. */
    int64_t lines, held_out, right;
    int64_t n_grams; /* in the model */
    double temperature;
};
/* Writes the model of the `most` n-grams a label, on average, into out. */
int language_trainer_finish(struct language_trainer *t, int most, struct str *out, struct language_result *r,
                            struct err *e);

#endif
