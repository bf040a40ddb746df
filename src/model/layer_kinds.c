/* SPDX-License-Identifier: Apache-2.0 */
/* layer_kinds.c: letters are places in one text. */
#include "model/layer_kinds.h"

#include <string.h>

#include "base/err.h"

static const char letters[LAYER_KINDS] = {[LAYER_SCAN] = 'M', [LAYER_ATTENTION] = '*', [LAYER_MLP] = '-'};

static enum layer_kind kind_of(char letter)
{
    for (int k = LAYER_SCAN; k < LAYER_KINDS; k++)
        if (letters[k] == letter) return (enum layer_kind)k;
    return LAYER_BOTH;
}

const char *layer_kinds_wanted(const char *text)
{
    static const char wanted[] = "a letter for each layer: M (a state space), * (attention), - (a feed-forward layer); "
                                 "at most 127 characters",
                      experts[] = "M, * and - only: layers of experts without gates (E) are not computed here";
    size_t n = strlen(text);
    if (!n || n >= LAYER_PATTERN_BYTES) return wanted;
    for (size_t i = 0; i < n; i++)
        if (kind_of(text[i]) == LAYER_BOTH) return text[i] == 'E' ? experts : wanted;
    return NULL;
}

int64_t layer_kinds_length(const struct layer_pattern *p) { return (int64_t)strlen(p->text); }

enum layer_kind layer_kind_at(const struct layer_pattern *p, int64_t layer)
{
    int64_t n = layer_kinds_length(p);
    CHECK(n > 0 && layer >= 0, "layer %lld of a pattern of %lld", (long long)layer, (long long)n);
    return kind_of(p->text[layer % n]);
}

bool layer_kinds_have(const struct layer_pattern *p, enum layer_kind k) { return strchr(p->text, letters[k]) != NULL; }

char layer_kind_letter(enum layer_kind k)
{
    CHECK(k > LAYER_BOTH && k < LAYER_KINDS, "kind %d has no letter", (int)k);
    return letters[k];
}
