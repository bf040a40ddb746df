/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h: a file as slow memory: bytes are put there and fetched by threads of its own, beside the work.
 *
 * One file per rank, which has no name from the moment it is opened: whatever ends the process leaves nothing behind.
 * Addresses in it are numbers with a bit that no memory has (device_in_file), so they go through offsets and buffers as
 * any other address does; copies know them (device/cpu.c), nobody else does. A rank takes places (buffers of MEM_DISK),
 * then reserves the space of all of them, so that a full disk is found before anything is computed.
 *
 * Every block of BLOCK bytes has a checksum in memory, compared when it is read: what the disk gives back is what it
 * was given, or the run ends. Blocks that were never written read as zeros, from nowhere.
 *
 * Invariants
 *   1. Requests that meet in the file or in memory, one of them writing, are done in the order of their begin; others
 *      side by side.
 *   2. Memory of a request belongs to it until it was waited for.
 *   3. The first failure stays: what follows moves nothing (reads leave zeros), and tier_status tells.
 * Includes: base. Order: Local; begun and waited for by the rank's own thread.
 */
#ifndef TUTTI_DEVICE_TIER_H
#define TUTTI_DEVICE_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TIER_BLOCK = 4096 /* also of direct I/O: offsets, sizes, addresses */, TIER_PIECE = 1 << 20, TIER_THREADS = 2 };

/* What it takes of memory: for its threads, once something was taken, and checksums of so many bytes that are taken in
 * one place. The ledger counts both (device.c). */
enum { TIER_ROOM = TIER_PIECE + 2 * TIER_BLOCK /* a piece across blocks */, TIER_ROOMS = TIER_THREADS * TIER_ROOM };
static inline size_t tier_sums(size_t bytes) { return (bytes + TIER_BLOCK - 1) / TIER_BLOCK * sizeof(uint64_t); }

struct tier;
struct tier_counts {
    int64_t put_bytes, got_bytes; /* of requests, from when they begin */
    double waited_s;              /* the rank's thread, for requests */
    double busy_s;                /* of the threads, in calls to the system, added up */
};

/* dir has to be there. With direct I/O where its file system takes it. */
int tier_open(struct tier **out, const char *dir, struct err *e);
void tier_close(struct tier *t); /* waits for what is under way; NULL is fine */
bool tier_is_direct(const struct tier *t);
const char *tier_dir(const struct tier *t);

/* Places: whole blocks, one behind the other; given back all together. */
void *tier_take(struct tier *t, size_t bytes);
void tier_give(struct tier *t, size_t bytes);
/* Space for all that was taken so far, once, before the first request. What the disk lacks is in the error. */
int tier_reserve(struct tier *t, struct err *e);
/* Bytes a second of a few MiB written and read back, in what was reserved, before its first use. */
void tier_measure(struct tier *t, double *put, double *get);
/* Seconds that so many bytes (whole blocks of them) take there and then back, with nothing beside them; what was there
 * is overwritten. */
double tier_time(struct tier *t, int64_t put, int64_t get);

/* Begin; returns a number for tier_wait, from 1. `at` is an address in the file. */
uint64_t tier_put(struct tier *t, void *at, const void *src, size_t bytes);
uint64_t tier_get(struct tier *t, void *dst, const void *at, size_t bytes);
/* Until this request and all before it are done. 0: nothing. */
void tier_wait(struct tier *t, uint64_t request);
void tier_zero(struct tier *t, void *at, size_t bytes); /* done when it returns */
int tier_status(struct tier *t, struct err *e);
struct tier_counts tier_counts(struct tier *t);
int tier_file(const struct tier *t); /* its descriptor, for tests */

#define DEVICE_IN_FILE ((uintptr_t)1 << 53)
static inline bool device_in_file(const void *p) { return ((uintptr_t)p & DEVICE_IN_FILE) != 0; }

#endif
