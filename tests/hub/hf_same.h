/* SPDX-License-Identifier: Apache-2.0 */
/* hf_same.h: whether two models of Hugging Face are the same in every number of the tables. */
#ifndef TUTTI_TESTS_HUB_HF_SAME_H
#define TUTTI_TESTS_HUB_HF_SAME_H

#include <string.h>

#include "hub/hf_numbers.h"

static inline bool hf_same_numbers(const struct number *rows, const void *a, const void *b)
{
    bool same = true;
    for (const struct number *n = rows; n->row.path; n++) {
        const char *x = (const char *)a + n->row.offset, *y = (const char *)b + n->row.offset;
        size_t bytes = n->row.type == CONF_BOOL      ? sizeof(bool)
                       : n->row.type == CONF_CHOICE  ? sizeof(int)
                       : n->row.type == CONF_NUMBERS ? sizeof(struct conf_numbers)
                                                     : 8;
        if (n->row.type == CONF_WORD) same = same && !strcmp(*y ? y : n->row.otherwise, *x ? x : n->row.otherwise);
        else same = same && !memcmp(x, y, bytes);
    }
    return same;
}

static inline bool hf_same(const struct hf_model *a, const struct hf_model *b)
{
    return a->family == b->family && a->model.family == b->model.family &&
           hf_same_numbers(model_numbers, &a->model, &b->model) && hf_same_numbers(hf_more_numbers, a, b) &&
           a->bos == b->bos && a->n_eos == b->n_eos && memcmp(a->eos, b->eos, sizeof a->eos) == 0;
}

#endif
