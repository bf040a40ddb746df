/* SPDX-License-Identifier: Apache-2.0 */
/* companions.h: what goes with the weights of a run besides them: the tokenizer's files, chat templates, settings of
 * generation. A run keeps them in run.dir/tokenizer, every checkpoint carries them, an export writes them again.
 * Floor 7. Order: Local; one rank.
 */
#ifndef TUTTI_CONFIG_COMPANIONS_H
#define TUTTI_CONFIG_COMPANIONS_H

#include "hub/hf.h"
#include "token/tokenizer.h"
#include "config/config.h"

/* Writes the tokenizer into dir, with the files beside it as they are where it comes with a tokenizer_config.json;
 * settings of generation come from model.from. What an earlier start left there and is no longer so is removed. */
int companions_keep(const struct tokenizer *t, const struct config *c, const char *dir, struct err *e);
/* Gives h the ends that model.from names where they are ends of this run's tokenizer too: a chat model has several. */
void companions_ends(const struct config *c, struct hf_model *h);

#endif
