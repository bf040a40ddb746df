/* SPDX-License-Identifier: Apache-2.0 */
/* Names of actions, and one action as text. Everything about a kind that is not code stands in one table. Kinds
 * are matched longest name first, so that "2BW0" is not read as B followed by rubbish. */
#include "schedule/action.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t is_compute, has_microbatch, has_peer;
} kinds[ACTION_N] = {
    [ACTION_F] = {"F", 1, 1, 0},           [ACTION_B] = {"B", 1, 1, 0},
    [ACTION_W] = {"W", 1, 1, 0},           [ACTION_BW] = {"BW", 1, 1, 0},
    [ACTION_RECV_F] = {"RF", 0, 1, 1},     [ACTION_SEND_F] = {"SF", 0, 1, 1},
    [ACTION_RECV_B] = {"RB", 0, 1, 1},     [ACTION_SEND_B] = {"SB", 0, 1, 1},
    [ACTION_GATHER] = {"GATHER", 0, 0, 0}, [ACTION_RELEASE] = {"RELEASE", 0, 0, 0},
    [ACTION_REDUCE] = {"REDUCE", 0, 0, 0}, [ACTION_RECOMPUTE] = {"RECOMPUTE", 1, 1, 0},
    [ACTION_UPDATE] = {"UPDATE", 0, 0, 0}, [ACTION_PUBLISH] = {"PUBLISH", 0, 0, 0},
};

const char *action_name(enum action_kind kind) { return (unsigned)kind < ACTION_N ? kinds[kind].name : "?"; }

int action_is_compute(enum action_kind kind) { return kinds[kind].is_compute; }

int action_has_microbatch(enum action_kind kind) { return kinds[kind].has_microbatch; }

int action_has_peer(enum action_kind kind) { return kinds[kind].has_peer; }

int action_has_unit(enum action_kind kind) { return !kinds[kind].has_microbatch; }

int action_equal(struct action a, struct action b) { return memcmp(&a, &b, sizeof a) == 0; }

char *action_print(char out[32], struct action a)
{
    int n = snprintf(out, 32, "%u%s", a.stage, action_name((enum action_kind)a.kind));
    if (a.kind >= ACTION_N) return out;
    if (kinds[a.kind].has_microbatch) n += snprintf(out + n, (size_t)(32 - n), "%u", a.microbatch);
    if (kinds[a.kind].has_peer) snprintf(out + n, (size_t)(32 - n), "@%u", a.peer);
    else if (a.part != ACTION_WHOLE) snprintf(out + n, (size_t)(32 - n), ".%u", a.part);
    return out;
}

/* The longest kind whose name text begins with and no letter follows; -1: none. */
static int kind_at(const char *text)
{
    int best = -1;
    size_t best_n = 0;
    for (int k = 0; k < ACTION_N; k++) {
        size_t n = strlen(kinds[k].name);
        if (n > best_n && !strncmp(text, kinds[k].name, n) && !isalpha((unsigned char)text[n])) {
            best = k;
            best_n = n;
        }
    }
    return best;
}

/* A decimal number up to limit at *p, which moves behind it; -1: none. */
static long number_at(const char **p, long limit)
{
    if (!isdigit((unsigned char)**p)) return -1;
    long v = 0;
    for (; isdigit((unsigned char)**p); (*p)++) {
        v = v * 10 + (**p - '0');
        if (v > limit) return -1;
    }
    return v;
}

int action_parse(const char *text, struct action *out, int *used, struct err *e)
{
    const char *p = text;
    int word = (int)strcspn(text, " \t\r\n");
    if (word > 40) word = 40;
    long stage = number_at(&p, 0xffff);
    if (stage < 0)
        return err_set(e, ERR_REQUEST, "'%.*s': wanted a stage (0 to 65535) and a kind, as in 2F0", word, text);
    int kind = kind_at(p);
    if (kind < 0)
        return err_set(e, ERR_REQUEST,
                       "'%.*s': no such kind of action; there are F, B, W, BW, RF, SF, RB, SB, GATHER, RELEASE, "
                       "REDUCE, RECOMPUTE, UPDATE, PUBLISH",
                       word, text);
    p += strlen(kinds[kind].name);
    long microbatch = 0, part = ACTION_WHOLE, peer = 0;
    if (kinds[kind].has_microbatch && (microbatch = number_at(&p, 0xffff)) < 0)
        return err_set(e, ERR_REQUEST, "'%.*s': wanted a microbatch (0 to 65535) after %s", word, text,
                       kinds[kind].name);
    if (*p == '.' && !kinds[kind].has_peer) {
        p++;
        if ((part = number_at(&p, ACTION_WHOLE - 1)) < 0)
            return err_set(e, ERR_REQUEST, "'%.*s': wanted a part (0 to 65534) after the dot", word, text);
    }
    if (kinds[kind].has_peer) {
        if (*p != '@') return err_set(e, ERR_REQUEST, "'%.*s': wanted @ and the other rank", word, text);
        p++;
        if ((peer = number_at(&p, 0xffff)) < 0)
            return err_set(e, ERR_REQUEST, "'%.*s': wanted a rank (0 to 65535) after @", word, text);
    }
    if (*p && !isspace((unsigned char)*p))
        return err_set(e, ERR_REQUEST, "'%.*s': '%c' is not part of an action", word, text, *p);
    *out = action_of((enum action_kind)kind, (int)stage, (int)microbatch);
    if (kinds[kind].has_peer) out->peer = (uint16_t)peer;
    else out->part = (uint16_t)part;
    *used = (int)(p - text);
    return OK;
}
