/* SPDX-License-Identifier: Apache-2.0 */
/* What goes by a token's place in its sequence (by_place.h), operation by operation: whoever puts tokens in
 * another order asks here. The table names all of them, so that a new operation has to say; lowered rows and cached
 * ones see no order of documents and are not asked. */
#include "kernel/by_place.h"

enum by_place {
    UNSAID,
    NEVER,      /* rows by themselves, or only which of two tokens of a document comes first */
    DROPS,      /* never, but where it drops: the numbers of chance are counted by places */
    REACHES,    /* the same, and a window that is not told which token stands where */
    LIMITS,     /* a capacity: who comes first finds room */
    ALWAYS,     /* neighbours, distances, or a place that is read out */
    NOT_ON_TAPE /* of training */
};

static const unsigned char by_place[OP_FIRST_ARRAY] = {
    [OP_EMBED] = NEVER,
    [OP_LINEAR] = NEVER,
    [OP_RMSNORM] = NEVER,
    [OP_LAYERNORM] = NEVER,
    [OP_HEADNORM] = NEVER,
    [OP_SQUARES] = NEVER,
    [OP_NORM_BY] = NEVER,
    [OP_ROTARY] = NEVER, /* by positions, which tokens have with them */
    [OP_ATTENTION] = REACHES,
    [OP_ACT] = NEVER,
    [OP_ADD] = DROPS,
    [OP_DROPOUT] = DROPS,
    [OP_XENT] = NEVER,
    [OP_XENT_PART] = NEVER,
    [OP_ATTENTION_CACHED] = NOT_ON_TAPE,
    [OP_ATTENTION_PART] = REACHES,
    [OP_COPY] = NEVER,
    [OP_ROUTER] = NEVER,
    [OP_LOAD] = NEVER,
    [OP_BALANCE] = NEVER,
    [OP_PERMUTE] = LIMITS,
    [OP_GROUPED] = NEVER,
    [OP_UNPERMUTE] = NEVER,
    [OP_EXPERT_BIAS] = NEVER,
    [OP_MLA_KV] = NEVER,
    [OP_TRIM] = NEVER,
    [OP_JOIN] = NEVER,
    [OP_PATCHES] = NEVER, /* of pictures, which lie beside the sequence */
    [OP_POOL] = ALWAYS,
    [OP_INSERT] = NEVER,
    [OP_CONV] = ALWAYS,
    [OP_TIMES] = NEVER,
    [OP_SCAN] = ALWAYS,
    [OP_SCAN_END] = ALWAYS,
    [OP_GATED_NORM] = NEVER,
    [OP_CONV_CACHED] = NOT_ON_TAPE,
    [OP_SCAN_CACHED] = NOT_ON_TAPE,
    [OP_CODED] = NOT_ON_TAPE,
    [OP_TAILS] = ALWAYS,
    [OP_HALO] = ALWAYS,
    [OP_CARRY] = ALWAYS,
    [OP_PICK] = ALWAYS,
    [OP_DISTANCES] = ALWAYS,
    [OP_ATTENTION_BIASED] = ALWAYS,
    [OP_ATTENTION_CACHED_BIASED] = NOT_ON_TAPE,
    [OP_ADAPTED_SQUARES] = NEVER,
    [OP_MAGNITUDES] = NEVER,
    [OP_ENTER] = NEVER,
    [OP_REDUCE] = NEVER,
    [OP_GATHER] = NEVER,
    [OP_SCATTER] = NEVER,
    [OP_SPREAD] = NEVER,
    [OP_COLLECT] = NEVER,
    [OP_DISPATCH] = NEVER,
    [OP_COMBINE] = NEVER,
    [OP_CONTEXT] = REACHES,
    [OP_STORE] = NOT_ON_TAPE,
    [OP_FETCH] = NOT_ON_TAPE,
    [OP_AMAX] = NOT_ON_TAPE,
    [OP_QUANTISE] = NOT_ON_TAPE,
    [OP_LINEAR_SCALED] = NOT_ON_TAPE,
    [OP_AGREE] = NOT_ON_TAPE,
    [OP_AMAX_PARTS] = NOT_ON_TAPE,
    [OP_QUANTISE_PARTS] = NOT_ON_TAPE,
    [OP_GROUPED_SCALED] = NOT_ON_TAPE,
};

const char *op_by_place(enum op op, const struct op_attrs *at, bool told)
{
    if (op >= OP_FIRST_ARRAY) return "it is not on a tape";
    switch ((enum by_place)by_place[op]) {
    case REACHES:
        if (at_heads(at)->window && !told) return "a window reaches back so many places";
        /* fall through */
    case DROPS: return at_dropout_p(at) > 0 ? "dropout counts places" : NULL;
    case LIMITS: return at_permute(at)->capacity ? "a capacity is for who comes first" : NULL;
    case ALWAYS: return "it works on neighbours or distances";
    case NEVER: return NULL;
    case NOT_ON_TAPE: return "it is not of training";
    default: bug(__FILE__, __LINE__, "by_place[op]", "%s does not say whether it goes by places", op_row(op)->name);
    }
}
