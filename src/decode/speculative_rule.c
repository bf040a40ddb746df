/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic alone: no model is known here, so that a test can go through every case of a small vocabulary. */
#include "decode/speculative_rule.h"

#include <string.h>

enum { LOOKUP = 3 }; /* tokens that are looked up at most */

bool speculate_takes(double p, double q, double u) { return u * q < p; }

/* What is left for token v when q was had. */
static double rest(const double *p_V, const double *q_V, int64_t guess, int64_t v)
{
    double q = q_V ? q_V[v] : v == guess;
    return p_V[v] > q ? p_V[v] - q : 0;
}

int64_t speculate_instead(const double *p_V, const double *q_V, int64_t n, int64_t guess, double u)
{
    double total = 0, passed = 0;
    int64_t last = guess;
    for (int64_t v = 0; v < n; v++) total += rest(p_V, q_V, guess, v);
    bool nothing = !(total > 0);
    for (int64_t v = 0; nothing && v < n; v++) total += p_V[v];
    for (int64_t v = 0; v < n; v++) {
        double w = nothing ? p_V[v] : rest(p_V, q_V, guess, v);
        if (!(w > 0)) continue;
        passed += w;
        last = v;
        if (passed > u * total) break;
    }
    return last;
}

int64_t speculate_lookup(const int32_t *ids, int64_t n, int32_t *guess, int64_t most)
{
    for (int64_t gram = LOOKUP; gram > 0; gram--)
        for (int64_t end = n - 1; end >= gram; end--) { /* of the earlier place */
            if (memcmp(ids + end - gram, ids + n - gram, (size_t)gram * sizeof *ids)) continue;
            int64_t found = n - end < most ? n - end : most;
            memcpy(guess, ids + end, (size_t)found * sizeof *ids);
            return found;
        }
    return 0;
}
