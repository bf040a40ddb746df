/* SPDX-License-Identifier: Apache-2.0 */
/* copy_owner.h: whose a place of copies is: a small file that lies beside them, tutti-run.json.
 *
 *   {"run": "0123456789abcdef", "session": "...", "dir": "/home/me/runs/a", "by": "process 12 on host-3",
 *    "step": 500, "publication": 7, "xxh64": "..."}
 *
 * It is written before the first copy, and again after each: so a place that nothing was copied to yet has an owner,
 * and a list that lacks the last copy is known to lack it. `session` is of the process that copies: one that finds
 * another one's copies no more, since two that copy to one place would remove each other's.
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_KEEP_COPY_OWNER_H
#define TUTTI_KEEP_COPY_OWNER_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define COPY_OWNER_NAME "tutti-run.json"
#define COPY_OWNER_LIMIT ((size_t)64 << 10)

struct copy_owner {
    uint64_t run, session;
    char *dir, *by;            /* run.dir, absolute; who copies */
    int64_t step, publication; /* of the copy that was made last; -1: none was */
};

void copy_owner_free(struct copy_owner *o);
void copy_owner_print(const struct copy_owner *o, struct str *out);
/* fails   ERR_CORRUPT; o is to be freed after OK alone */
int copy_owner_parse(struct copy_owner *o, const char *text, size_t n, const char *what, struct err *e);
/* This process, in words; xfree it. */
char *copy_owner_me(void);

#endif
