/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h: what a config's files decide: the architecture from model.from, the vocabulary from the tokenizer.
 * Floor 6. Order: Same(config).
 */
#ifndef TUTTI_RUN_SETUP_H
#define TUTTI_RUN_SETUP_H

#include "checkpoint/weights.h"
#include "data/tokenizer.h"
#include "run/config.h"

/* Copies the architecture of model.from into c->model (keys given beside it must agree), then opens the tokenizer.
 * *t may be NULL afterwards when model.vocab is given and the tokenizer is not needed to resolve the config. */
int setup_model(struct config *c, const struct conf *f, struct arena *a, struct tokenizer **t, struct err *e);

/* Opens model.from; keys named in model.ignore are not refused. */
int setup_weights(struct weights **w, const struct config *c, struct err *e);
/* Says when the dropout that the model was trained with, by its config.json, is not the one in use: that is model.dropout. */
void setup_say_dropout(const struct weights *w, const struct config *c);

#endif
