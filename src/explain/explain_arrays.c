/* SPDX-License-Identifier: Apache-2.0 */
/* The store's table on rank 0: a line per array that is here. What is shared out shows as pieces, what only some
 * parameters have by their groups. */
#include "explain/explain.h"

static const char *const group_name[PARAM_GROUPS] =
    {[PARAM_MATRICES] = "matrices", [PARAM_EMBEDDINGS] = "embeddings", [PARAM_VECTORS] = "vectors"};

static void put_groups(struct str *out, unsigned groups)
{
    const char *between = "";
    if (groups == PARAM_ALL_GROUPS) str_puts(out, "all");
    for (int g = 0; groups != PARAM_ALL_GROUPS && g < PARAM_GROUPS; g++)
        if (groups >> g & 1) {
            str_printf(out, "%s%s", between, group_name[g]);
            between = ", ";
        }
}

void explain_arrays(const struct explain *x, struct str *out)
{
    const struct store *s = &x->g->store;
    char b[32];
    str_printf(out, "\n%-10s %-5s %-6s %10s  %-7s %-8s of\n", "array", "type", "here", "bytes", "saved", "stepped");
    for (int i = 0; i < s->n_arrays; i++) {
        const struct array *a = &s->array[i];
        if (!array_is_here(a)) continue;
        str_printf(out, "%-10s %-5s %-6s %10s  %-7s %-8s ", a->row.name, dtype_name(a->row.dtype),
                   a->whole ? "whole" : "pieces", str_bytes(b, (double)a->buf.bytes), a->row.saved ? "yes" : "-",
                   a->row.stepped ? "yes" : "-");
        put_groups(out, a->row.groups);
        if (a->row.block == ARRAY_TENSOR) str_printf(out, ", %lld each", (long long)a->row.each);
        if (a->row.block == ARRAY_FACTORS) str_puts(out, ", one per row and column");
        if (a->row.block == ARRAY_GROUPS) str_puts(out, ", one per group of scales");
        if (a->row.block == ARRAY_ROW_BLOCK) str_printf(out, ", one per %lld of a row", (long long)a->row.each);
        str_putc(out, '\n');
    }
}

void explain_arrays_json(const struct explain *x, struct json_out *o)
{
    const struct store *s = &x->g->store;
    json_begin_array(o, "arrays");
    for (int i = 0; i < s->n_arrays; i++) {
        const struct array *a = &s->array[i];
        if (!array_is_here(a)) continue;
        json_begin_object(o, NULL);
        json_put_string(o, "name", a->row.name);
        json_put_string(o, "dtype", dtype_name(a->row.dtype));
        json_put_string(o, "category", mem_cat_name(a->row.cat));
        json_put_bool(o, "whole", a->whole);
        json_put_bool(o, "saved", a->row.saved);
        json_put_bool(o, "stepped", a->row.stepped);
        if (a->row.block == ARRAY_TENSOR) json_put_int(o, "each", a->row.each);
        if (a->row.block == ARRAY_ROW_BLOCK) json_put_int(o, "row_block", a->row.each);
        json_begin_array(o, "groups");
        for (int g = 0; g < PARAM_GROUPS; g++)
            if (a->row.groups >> g & 1) json_put_string(o, NULL, group_name[g]);
        json_end_array(o);
        json_put_int(o, "bytes", (int64_t)a->buf.bytes);
        json_end_object(o);
    }
    json_end_array(o);
}
