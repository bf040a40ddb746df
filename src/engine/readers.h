/* SPDX-License-Identifier: Apache-2.0 */
/* readers.h: ranks that hold the same of an array read it from a checkpoint once. Each of them reads a part, in place;
 * then the parts travel along routes (state/route_run.h) from where they were read to where they are missing, between
 * the arrays themselves.
 *
 * Who reads what follows from the layouts of the parameters alone (state/param.h), so nobody is asked. A part is rows,
 * about READERS_LEAST bytes at least: less than what a file is compared with its checksums by would be read by several
 * all the same. Which of the holders begins with the first part goes round from one parameter to the next.
 *
 * Bytes of files that all ranks read together are then about those of the checkpoint, however many replicas there are;
 * each is compared with its checksum by the rank that reads it, and nothing is sent before all ranks have agreed that
 * all went well. Servers hold what nobody else has, and arrays with values per tensor are small: everybody reads these
 * alone. Floor 6. Order: as stated.
 */
#ifndef TUTTI_ENGINE_READERS_H
#define TUTTI_ENGINE_READERS_H

#include "engine/engine.h"

enum { READERS_LEAST = 4 << 20 };

/* Of what this rank holds of a parameter's array (store_held) the part that it reads; n 0: others do. Local. */
struct array_span readers_part(const struct engine *g, int param, int which);
/* After every rank has read its part and all agreed: what others read comes from them. Errors between ranks stick to
 * the world (engine_status). Collective(all ranks of the engine's mesh). */
int readers_share(struct engine *g, struct err *e);

#endif
