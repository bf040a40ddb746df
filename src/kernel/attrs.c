/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of attributes without knowing their row, and the end of whoever asks for those of another. */
#include "kernel/kernel.h"

const char *attrs_kind_name(enum attrs_kind k)
{
#define NAME(kind, name) [ATTRS_##kind] = #name,
    static const char *const names[ATTRS_N] = {[ATTRS_NONE] = "none", ATTRS_EACH(NAME)};
#undef NAME
    return (int)k >= 0 && k < ATTRS_N ? names[k] : "unknown";
}

void attrs_wrong(enum attrs_kind has, enum attrs_kind wanted)
{
    bug(__FILE__, __LINE__, "has == wanted", "attributes of %s were read as those of %s", attrs_kind_name(has),
        attrs_kind_name(wanted));
}

const struct axis_ranks *at_over(const struct op_attrs *at)
{
    switch (at->kind) {
    case ATTRS_ROWS: return &at_rows(at)->over;
    case ATTRS_DISPATCH: return &at_dispatch(at)->over;
    case ATTRS_CONTEXT: return &at_context(at)->over;
    default: return &at_sum(at)->over;
    }
}

float at_dropout_p(const struct op_attrs *at)
{
    switch (at->kind) {
    case ATTRS_DROPOUT: return at_dropout(at)->p;
    case ATTRS_ATTENTION:
    case ATTRS_ATTENTION_PART:
    case ATTRS_CONTEXT: return at_heads(at)->dropout.p;
    default: return 0;
    }
}

struct op_attrs op_attrs_zero(enum op op) { return (struct op_attrs){.kind = op_row(op)->attrs}; }
