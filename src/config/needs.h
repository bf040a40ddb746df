/* SPDX-License-Identifier: Apache-2.0 */
/* needs.h: what must be so for a key to matter. Every row of config_rows says it (conf_row.need), so that a key without
 * its switch is never passed over: most are told before the first step (traps.h), and those whose user believes that
 * something else is trained (adapters without adapter.kind) are refused.
 *
 * Invariants
 *   1. A row without a need is a mistake, which a test finds (tests/train/test_refusals.c walks all keys).
 *   2. A key that is idle is read by nobody in this run, whatever its value.
 * Floor 7. Order: Same(config).
 */
#ifndef TUTTI_CONFIG_NEEDS_H
#define TUTTI_CONFIG_NEEDS_H

#include "config/config.h"

enum key_need {
    WANTS_UNSAID,    /* of no row of config_rows */
    WANTS_NOTHING,   /* it always matters, or what else it wants is refused by its own room */
    WANTS_NUMBER,    /* a number of the model: model/numbers.def says what */
    WANTS_OPTIMIZER, /* one of the optimizers that read it: optim/rows.c */
    WANTS_FROM,
    WANTS_TEXT,
    WANTS_SAMPLES, /* of given text: answers are none */
    WANTS_PACKED,
    WANTS_BY_STEP,
    WANTS_FIM,
    WANTS_HIDDEN,
    WANTS_PAIRS,
    WANTS_SIDES,
    WANTS_CLASSES,
    WANTS_CHAT, /* of an item of data.train */
    WANTS_PICTURES,
    WANTS_BOXES,
    WANTS_VALIDATION,
    WANTS_DPO,
    WANTS_SCORE,
    WANTS_REWARDS,
    WANTS_ADAPTER,
    WANTS_BLOCKS,
    WANTS_DECAY,
    WANTS_WSD,
    WANTS_FP8_BLOCK,
    WANTS_HISTORY,
    WANTS_FEWER_BITS,
    WANTS_LOOKS,
    WANTS_FALLBACK,
    WANTS_NO_MASTER,
    WANTS_FP16,
    WANTS_SHARED,
    WANTS_TP,
    WANTS_CP,
    WANTS_TWO_LEVEL,
    WANTS_STAGES,
    WANTS_EXPERTS,
    WANTS_SERVERS,
    WANTS_ASYNC_SERVERS,
    WANTS_RANKS,
    WANTS_SUMS,
    WANTS_SHARING,
    WANTS_RECOMPUTE,
    WANTS_OFFLOAD,
    WANTS_DISPATCH,
    WANTS_WAVES,
    WANTS_KEPT_FEW,
    WANTS_SAVES_BESIDE,
    WANTS_RETRIES,
    WANTS_COPIES,
    WANTS_IN_MEMORY,
    WANTS_SAMPLE,
    WANTS_WRITES,
    WANTS_STOP_EARLY,
    WANTS_SPIKES,
    WANTS_REWINDS,
    WANTS_TRACE,
    WANTS_ELASTIC,
    WANTS_STATUS,
    WANTS_N
};

enum { NEEDS_WHY = 160 };
/* Whether nobody reads the key in this run; why not, in words that end a sentence ("adapter.kind is none"). c is
 * resolved. */
bool needs_idle(const struct config *c, const struct conf_row *r, char why[NEEDS_WHY]);
/* Whether somebody means it: it is given, and not merely because a printed config gives every key. A value that is not
 * the default is meant; the default is where it stands on the command line, or where its switch was never named. */
bool needs_meant(const struct config *c, const struct conf *f, const struct conf_row *r);
/* Keys that are meant and idle, where that makes another training of it: ERR_REQUEST. */
int needs_check(const struct config *c, const struct conf *f, struct err *e);
/* And where it does not: a warning for each. */
void needs_say(const struct config *c, const struct conf *f);

#endif
