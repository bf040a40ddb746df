/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/recompute.h"

#include <stdio.h>
#include <string.h>

#include "tape/tape.h"

#define BIT(op) ((uint64_t)1 << (op))

/* clang-format off */
const struct recompute_group recompute_groups[] = {
    {"norms", BIT(OP_RMSNORM) | BIT(OP_LAYERNORM) | BIT(OP_HEADNORM) | BIT(OP_NORM_BY) | BIT(OP_JOIN), true},
    {"activations", BIT(OP_ACT), true},
    {"attention", BIT(OP_ATTENTION) | BIT(OP_CONTEXT) | BIT(OP_ATTENTION_BIASED), true},
    {"gathers", BIT(OP_GATHER), false},
    {"scans", BIT(OP_CONV) | BIT(OP_TIMES) | BIT(OP_SCAN) | BIT(OP_SCAN_END) | BIT(OP_GATED_NORM), true},
    {"latent", BIT(OP_MLA_KV) | BIT(OP_TRIM), false},
    {"products", BIT(OP_LINEAR), false},
    {"experts", BIT(OP_PERMUTE) | BIT(OP_DISPATCH) | BIT(OP_GROUPED) | BIT(OP_COMBINE), false},
    {0},
};
/* clang-format on */

int recompute_named(const char *name, uint64_t *again)
{
    *again = 0;
    if (!strcmp(name, "none")) return 0;
    if (!strcmp(name, "full")) *again = AGAIN_ALL;
    for (const struct recompute_group *g = recompute_groups; g->name; g++)
        if (!strcmp(name, g->name) || (g->selective && !strcmp(name, "selective"))) *again |= g->again;
    return *again ? 0 : -1;
}

const char *recompute_text(uint64_t again, char out[96])
{
    size_t n = 0;
    if (!again || again == AGAIN_ALL) {
        snprintf(out, 96, "%s", again ? "full" : "none");
        return out;
    }
    for (const struct recompute_group *g = recompute_groups; g->name; g++)
        if ((again & g->again) == g->again) n += (size_t)snprintf(out + n, 96 - n, "%s%s", n ? " + " : "", g->name);
    return out;
}
