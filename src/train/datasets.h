/* SPDX-License-Identifier: Apache-2.0 */
/* datasets.h: a config's data, opened: one place for training, `tutti data ledger` and whoever else reads it.
 * Floor 10. Order: Local (dataset_open).
 */
#ifndef TUTTI_TRAIN_DATASETS_H
#define TUTTI_TRAIN_DATASETS_H

#include "config/config.h"
#include "data/dataset.h"

/* data.train or data.valid (list, of c itself) of a resolved config. give_up: see dataset_options. */
int datasets_open(struct dataset **d, const struct config *c, const struct conf_list *list, const struct tokenizer *t,
                  const atomic_int *give_up, struct err *e);
/* What of the data's keys is refused before anything of it is looked for: ERR_REQUEST. */
int datasets_check(const struct config *c, const struct conf *f, struct err *e);
/* What packing does to each source, a line each: sequences, padding, documents that are cut or empty. Nothing where
 * documents are joined. */
void datasets_say(const struct dataset *d);

#endif
