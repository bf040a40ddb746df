/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cores.h"

#include <sched.h>
#include <string.h>

#include "base/err.h"

bool cores_of(int pid, struct cores *c)
{
    memset(c, 0, sizeof *c);
    return !sched_getaffinity(pid, sizeof c->word, (cpu_set_t *)(void *)c->word);
}

bool cores_bind(const struct cores *c)
{
    return !sched_setaffinity(0, sizeof c->word, (const cpu_set_t *)(const void *)c->word);
}

bool cores_has(const struct cores *c, int core)
{
    return core >= 0 && core < CORES_MOST && (c->word[core / 64] >> core % 64 & 1);
}

void cores_add(struct cores *c, int core)
{
    CHECK(core >= 0 && core < CORES_MOST, "core %d", core);
    c->word[core / 64] |= (uint64_t)1 << core % 64;
}

int cores_count(const struct cores *c) { return cores_common(c, c, NULL); }

void cores_join(struct cores *into, const struct cores *c)
{
    for (int i = 0; i < CORES_MOST / 64; i++) into->word[i] |= c->word[i];
}

int cores_common(const struct cores *a, const struct cores *b, struct cores *both)
{
    int n = 0;
    for (int i = 0; i < CORES_MOST / 64; i++) {
        uint64_t w = a->word[i] & b->word[i];
        n += __builtin_popcountll(w);
        if (both) both->word[i] = w;
    }
    return n;
}

void cores_print(const struct cores *c, struct str *out)
{
    const char *comma = "";
    for (int from = 0; from < CORES_MOST; from++) {
        int to = from;
        if (!cores_has(c, from)) continue;
        while (cores_has(c, to + 1)) to++;
        str_printf(out, "%s%d", comma, from);
        if (to > from) str_printf(out, "-%d", to);
        comma = ",";
        from = to;
    }
    if (!*comma) str_puts(out, "none");
}
