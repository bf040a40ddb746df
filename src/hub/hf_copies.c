/* SPDX-License-Identifier: Apache-2.0 */
/* hf_copies.c: a table of names, and one loop that compares them in parts of a MiB. Files of the library itself leave
 * copies out, so there is mostly nothing to read.
 *
 * Not compared are the tables that each of DeepSeek's modules for further tokens carries once more: gigabytes, which
 * opening would read for the sake of modules that a run may leave out. */
#include "hub/hf_copies.h"

#include <string.h>

#include "base/mem.h"
#include "checkpoint/convert.h"

enum { PART = 1 << 18 }; /* values */

static const struct {
    enum hf_family family;
    const char *copy, *of;
} copies[] = {
    {HF_T5, "encoder.embed_tokens.weight", "shared.weight"},
    {HF_T5, "decoder.embed_tokens.weight", "shared.weight"},
    {HF_BERT, "cls.predictions.decoder.bias", "cls.predictions.bias"},
};

static int read_part(struct safetensors *s, const struct safetensors_entry *t, int64_t at, int64_t n, void *room,
                     float *values, struct err *e)
{
    size_t each = dtype_bytes((enum dtype)t->dtype);
    int rc = safetensors_read(s, t, at * (int64_t)each, to_size(n) * each, room, e);
    if (!rc) convert(values, DT_F32, room, (enum dtype)t->dtype, n);
    return rc;
}

static bool is_real(const struct safetensors_entry *t)
{
    return t->dtype >= 0 && convertible((enum dtype)t->dtype, DT_F32);
}

int hf_same_values(struct safetensors *s, const struct safetensors_entry *a, const struct safetensors_entry *b,
                   bool *same, struct err *e)
{
    *same = is_real(a) && is_real(b) && shape_equal(&a->shape, &b->shape);
    if (!*same) return OK;
    int64_t n = shape_numel(&a->shape);
    void *room = xmalloc(PART * sizeof(double));
    float *x = xmalloc(PART * sizeof *x), *y = xmalloc(PART * sizeof *y);
    int rc = OK;
    for (int64_t at = 0; at < n && *same && !rc; at += PART) {
        int64_t part = n - at < PART ? n - at : PART;
        rc = read_part(s, a, at, part, room, x, e);
        if (!rc) rc = read_part(s, b, at, part, room, y, e);
        *same = !rc && !memcmp(x, y, to_size(part) * sizeof *x);
    }
    xfree(room);
    xfree(x);
    xfree(y);
    return rc;
}

int hf_copies_check(const struct hf_model *m, struct safetensors *s, const char *dir, struct err *e)
{
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        const struct safetensors_entry *a = safetensors_find(s, copies[i].copy), *b = safetensors_find(s, copies[i].of);
        bool same = true;
        int rc = copies[i].family == m->family && a && b ? hf_same_values(s, a, b, &same, e) : OK;
        if (rc) return rc;
        if (!same)
            return err_set(e, ERR_REQUEST,
                           "%s: %s is not %s once more: their releases differ in which one counts, and this model has "
                           "one of them; make them equal, or leave out the one that does not count",
                           dir, copies[i].copy, copies[i].of);
    }
    return OK;
}
