/* SPDX-License-Identifier: Apache-2.0 */
/* cond.h: conditions on which somebody waits for so long at most, by the clock that nobody sets: by a wall clock, which
 * jumps, a wait of 10 ms may become one of an hour. Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_COND_H
#define TUTTI_BASE_COND_H

#include <pthread.h>

void cond_init(pthread_cond_t *c); /* pthread_cond_destroy ends it */
/* The mutex is held, as for pthread_cond_wait. It may return early. */
void cond_wait_s(pthread_cond_t *c, pthread_mutex_t *held, double s);

#endif
