/* SPDX-License-Identifier: Apache-2.0 */
/* pattern_seam.c: where a text may be cut so that both sides can be searched apart.
 *
 * A cut between the characters a and b is one when (1) no path through the pattern's graph takes a and then b: no match
 * crosses the cut, and a try that fails there would have failed at the end of the text too; (2) every look-ahead is for
 * a single character of a class without b: it finds b as little as the end of the text; (3) nothing matches the empty
 * text. A match begins at b for certain when some path takes b and is at its end.
 *
 * (1) is asked of sets instead of characters: those that the graph lets stand before a set with b in it. Cost: steps
 * squared, once for a pattern.
 */
#include <string.h>

#include "base/mem.h"
#include "token/pattern_impl.h"

/* The steps that take a character, or end the match, reachable from step i without taking one; look-aheads pass. */
static void reach(const struct pattern *x, int i, bool *seen)
{
    if (seen[i]) return;
    seen[i] = true;
    const struct pattern_step *s = &x->steps[i];
    if (s->kind == STEP_FORK) reach(x, s->other, seen);
    if (s->kind == STEP_FORK || s->kind == STEP_LOOK || (s->kind == STEP_LOOP && s->min == 0)) reach(x, s->next, seen);
}

/* Is the end of the match reachable from step i without taking a character, and without a condition? */
static bool ends(const struct pattern *x, int i)
{
    const struct pattern_step *s = &x->steps[i];
    if (s->kind == STEP_ACCEPT) return true;
    if (s->kind == STEP_FORK) return ends(x, s->other) || ends(x, s->next);
    return s->kind == STEP_LOOP && s->min == 0 && ends(x, s->next);
}

static bool takes(const struct pattern *x, const struct pattern_step *s, unsigned char b)
{
    return (s->kind == STEP_CHAR || s->kind == STEP_LOOP) && x->pages[0][b] >> s->set & 1;
}

/* Does a match begin with b, whatever follows: from step i, unconditionally? */
static bool begins(const struct pattern *x, int i, unsigned char b)
{
    const struct pattern_step *s = &x->steps[i];
    if (takes(x, s, b) && (s->kind == STEP_CHAR || s->min <= 1) && ends(x, s->next)) return true;
    if (s->kind == STEP_FORK) return begins(x, s->other, b) || begins(x, s->next, b);
    return s->kind == STEP_LOOP && s->min == 0 && !takes(x, s, b) && begins(x, s->next, b);
}

static bool looks_past(const struct pattern *x, const struct pattern_step *look, unsigned char b)
{
    const struct pattern_step *s = &x->steps[look->other];
    return s->kind == STEP_CHAR && x->steps[s->next].kind == STEP_ACCEPT && !takes(x, s, b);
}

/* Sets after which b may come: those of the steps that have one which takes b behind them. */
static uint32_t sets_within(const struct pattern *x, unsigned char b, bool *seen)
{
    uint32_t within = 0;
    for (int i = 0; i < x->n_steps; i++) {
        const struct pattern_step *s = &x->steps[i];
        if (s->kind != STEP_CHAR && s->kind != STEP_LOOP) continue;
        memset(seen, 0, (size_t)x->n_steps);
        reach(x, s->next, seen);
        bool found = s->kind == STEP_LOOP && s->max > 1 && takes(x, s, b);
        for (int k = 0; k < x->n_steps && !found; k++) found = seen[k] && takes(x, &x->steps[k], b);
        if (found) within |= (uint32_t)1 << s->set;
    }
    return within;
}

void pattern_find_seams(struct pattern *x)
{
    bool *seen = xcalloc((size_t)x->n_steps, sizeof *seen);
    reach(x, x->start, seen);
    bool empty = false;
    for (int i = 0; i < x->n_steps; i++) empty = empty || (seen[i] && x->steps[i].kind == STEP_ACCEPT);
    for (int k = 0; k < PATTERN_SEAMS; k++) {
        unsigned char b = (unsigned char)PATTERN_SEAM_BYTES[k];
        struct pattern_seam *seam = &x->seams[k];
        *seam = (struct pattern_seam){.parts = !empty, .begins = begins(x, x->start, b)};
        for (int i = 0; i < x->n_steps && seam->parts; i++)
            seam->parts = x->steps[i].kind != STEP_LOOK || looks_past(x, &x->steps[i], b);
        seam->within = sets_within(x, b, seen);
    }
    xfree(seen);
}

bool pattern_parts_before(const struct pattern *x, int k, uint32_t before, bool *at_begin)
{
    const struct pattern_seam *seam = &x->seams[k];
    *at_begin = seam->begins;
    return seam->parts && !(x->pages[x->page_of[before / PAGE]][before % PAGE] & seam->within);
}
