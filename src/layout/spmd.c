/* SPDX-License-Identifier: Apache-2.0 */
/* Names and duals of the mesh types; the rules per operation live beside the operations (kernel/ops.c). */
#include "layout/spmd.h"

#include <stdio.h>
#include <string.h>

const char *axis_name(enum axis a)
{
    static const char *const names[AXIS_N] = {"pp", "dp_replicate", "dp_shard", "cp", "tp", "edp", "ep", "etp"};
    return names[a];
}

const char *spmd_name(enum spmd s)
{
    static const char *const names[SPMD_N] = {"I", "R", "S0", "S1", "S2", "S3", "V", "P"};
    return names[s];
}

enum spmd spmd_dual(enum spmd s) { return s == SPMD_R ? SPMD_P : s == SPMD_P ? SPMD_R : s; }

struct spmd_type spmd_all(enum spmd s)
{
    struct spmd_type t;
    memset(t.on, (int)s, sizeof t.on);
    return t;
}

struct spmd_type spmd_with(struct spmd_type t, enum axis a, enum spmd s)
{
    t.on[a] = (uint8_t)s;
    return t;
}

int spmd_equal(struct spmd_type a, struct spmd_type b) { return memcmp(a.on, b.on, sizeof a.on) == 0; }

char *spmd_print_on(char out[128], struct spmd_type t, unsigned axes)
{
    size_t n = 0;
    out[0] = 0;
    for (int a = 0; a < AXIS_N; a++)
        if (t.on[a] != SPMD_I && axes >> a & 1)
            n += (size_t)snprintf(out + n, 128 - n, "%s%s:%s", n ? " " : "", axis_name((enum axis)a),
                                  spmd_name((enum spmd)t.on[a]));
    return out;
}

char *spmd_print(char out[128], struct spmd_type t)
{
    spmd_print_on(out, t, ~0u);
    if (!*out) strcpy(out, "I");
    return out;
}
