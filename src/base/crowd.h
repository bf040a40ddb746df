/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.h: how many ranks may be threads of one process. Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_CROWD_H
#define TUTTI_BASE_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Up to 16 for each core that the process may use; beyond that they wait for each other for ever, and each wants its
 * memory. insisted: whoever asked said so (--crowd). ERR_REQUEST. */
int crowd_check(int64_t ranks, bool insisted, struct err *e);

#endif
