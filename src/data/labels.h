/* SPDX-License-Identifier: Apache-2.0 */
/* labels.h: the class of each document of a source: a member of its records. Includes: base, source.h. Order: Local. */
#ifndef TUTTI_DATA_LABELS_H
#define TUTTI_DATA_LABELS_H

#include <stdint.h>

#include "source/source.h"

/* Of the documents of an input that is read as `how` says, in their order: their record's member `column`, a number
 * from 0 to classes - 1; -1: its sample is not trained. Refused: another number, formats other than .jsonl, and an
 * input that has not n documents (it was changed since they were tokenized). labels [n], to be xfreed.
 *   cost    the input is read and parsed once */
int labels_read(const char *input, const struct source_options *how, const char *column, int64_t classes, int64_t n,
                int32_t **labels, struct err *e);

#endif
