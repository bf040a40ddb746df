/* SPDX-License-Identifier: Apache-2.0 */
/* afford.h: refusing what this machine's memory cannot hold, before it is asked for.
 *
 * Linux hands out more pages than it has and kills whoever touches the last one. So sizes are held against what there
 * is (base/limits.h) three times: as numbers, since products of legal keys may not fit 64 bits; as a bound from below,
 * before the program is lowered, which for an absurd model takes minutes and memory itself; exactly, when buffers are
 * planned and before any page of them is touched. memory.check: false leaves out the second and the third.
 * Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_AFFORD_H
#define TUTTI_CONFIG_AFFORD_H

#include "device/device.h"
#include "config/config.h"

/* No size that follows from c is beyond what is counted in 64 bits. For every command; keys are resolved. */
int afford_counted(const struct config *c, const struct conf *f, struct err *e);
/* What `here` of the n ranks cannot do without fits. */
int afford_least(const struct config *c, const struct conf *f, int n, int here, struct err *e);
/* What `here` ranks with such ledgers have planned (bytes of all of them) and mapped fits when it is touched. The
 * ledger says what for. ulimits had their say when it was mapped. */
int afford_planned(const struct config *c, const struct conf *f, const struct ledger *l, double bytes, int here,
                   struct err *e);
/* What a rank has planned, by category and together at the peak, is within memory.limit. */
int afford_limit(const struct config *c, const size_t at_peak[MEM_N], size_t peak_total, struct err *e);

#endif
