/* SPDX-License-Identifier: Apache-2.0 */
/* layer_pattern.c: runs of letters. Of a list of layers the shortest period is taken, and its runs are counted. */
#include "model/layer_pattern.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 10000 }; /* of one letter: no model has more layers */

/* The next run of *p: its length, at *has what it is; 0: the end, -1: not a pattern. */
static int64_t next_run(const char **p, bool *has)
{
    int64_t n = 0;
    const char *begin = *p;
    if (!**p) return 0;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        n = 10 * n + (**p - '0');
        if (n > MOST) return -1;
    }
    if (*p == begin) n = 1;
    *has = **p == 'x';
    if (n == 0 || (**p != 'x' && **p != 'o')) return -1;
    (*p)++;
    return n;
}

const char *layer_pattern_wanted(const char *text)
{
    static const char wanted[] = "which layers, as letters that are repeated: x (it has it), o (it has not), with a "
                                 "number for so many: 5xo; at most 127 characters";
    bool has;
    int64_t n;
    if (!*text || strlen(text) >= LAYER_PATTERN_BYTES) return wanted;
    while ((n = next_run(&text, &has)) > 0) {}
    return n < 0 ? wanted : NULL;
}

static int64_t period(const struct layer_pattern *p)
{
    const char *at = p->text;
    int64_t all = 0, n;
    bool has;
    while ((n = next_run(&at, &has)) > 0) all += n;
    return all;
}

bool layer_pattern_has(const struct layer_pattern *p, int64_t layer)
{
    int64_t all = period(p), n;
    const char *at = p->text;
    bool has = true;
    if (!all) return true;
    layer %= all;
    while ((n = next_run(&at, &has)) > 0 && layer >= n) layer -= n;
    return has;
}

int64_t layer_pattern_count(const struct layer_pattern *p, int64_t n)
{
    int64_t count = 0;
    for (int64_t l = 0; l < n; l++) count += layer_pattern_has(p, l);
    return count;
}

static bool repeats(const bool *has, int64_t n, int64_t every)
{
    for (int64_t l = every; l < n; l++)
        if (has[l] != has[l - every]) return false;
    return true;
}

bool layer_pattern_of(const bool *has, int64_t n, struct layer_pattern *p)
{
    int64_t every = 1;
    size_t used = 0;
    *p = (struct layer_pattern){.text = "x"};
    while (every < n && !repeats(has, n, every)) every++;
    for (int64_t l = 0, run; l < every && n > 0; l += run) {
        char text[24];
        for (run = 1; l + run < every && has[l + run] == has[l];) run++;
        int m = run > 1 ? snprintf(text, sizeof text, "%lld%c", (long long)run, has[l] ? 'x' : 'o')
                        : snprintf(text, sizeof text, "%c", has[l] ? 'x' : 'o');
        if (used + (size_t)m >= LAYER_PATTERN_BYTES) {
            *p = (struct layer_pattern){.text = "x"};
            return false;
        }
        memcpy(p->text + used, text, (size_t)m + 1);
        used += (size_t)m;
    }
    return true;
}
