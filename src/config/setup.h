/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h: what a config's files decide: the architecture from model.from, the vocabulary from the tokenizer.
 * Floor 7. Order: Same(config).
 */
#ifndef TUTTI_CONFIG_SETUP_H
#define TUTTI_CONFIG_SETUP_H

#include "hub/weights.h"
#include "token/tokenizer.h"
#include "config/config.h"

/* Copies the architecture of model.from into c->model (from.h), then opens the tokenizer: data.tokenizer, or without
 * that key the one of model.from, which c->data.tokenizer then names. *t is NULL afterwards where model.from has none:
 * the vocabulary is known, and a plan needs no more; and where the model sees pictures. */
int setup_model(struct config *c, const struct conf *f, struct arena *a, struct tokenizer **t, struct err *e);

/* Opens model.from; keys named in model.ignore are not refused. */
int setup_weights(struct weights **w, const struct config *c, struct err *e);
/* What to say where *t is NULL and text is to be read: ERR_REQUEST. */
int setup_no_tokenizer(const struct config *c, const struct conf *f, struct err *e);

#endif
