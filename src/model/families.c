/* SPDX-License-Identifier: Apache-2.0 */
/* families.c: the rows of families.def in memory, and what they have to say of each other, checked when this is
 * compiled. */
#include "model/families.h"

#include <stddef.h>

const char family_bar_words[] =
#define FAMILY(id, word, ...) "|" word
#include "model/families.def"
    ;

enum { PLAIN = false, EXPERTS = true };

/* clang-format off */
const struct family_row model_families[MODEL_N] = {
#define FAMILY(id, word, blocks, experts, type) [MODEL_##id] = {word, BLOCKS_##blocks, experts, HF_##type},
#include "model/families.def"
};
/* clang-format on */

/* The type in which a family is written is one of its own. */
enum {
#define MODEL_TYPE(id, letters, family, ...) FAMILY_OF_##id = MODEL_##family,
#include "model/families.def"
};
#define FAMILY(id, word, blocks, experts, type)                                                                        \
    _Static_assert((int)FAMILY_OF_##type == (int)MODEL_##id, word ": its MODEL_TYPE is another family's");
#include "model/families.def"

/* Each family is written as GGUF or is not: has one row. */
enum {
    GGUF_ROWS = 0
#define GGUF(family, ...) +1
#define NO_GGUF(family) +1
#include "model/families.def"
    ,
    GGUF_FAMILIES = 0
#define GGUF(family, ...) | 1 << MODEL_##family
#define NO_GGUF(family) | 1 << MODEL_##family
#include "model/families.def"
};
_Static_assert(GGUF_ROWS == (int)MODEL_N && GGUF_FAMILIES == (1 << MODEL_N) - 1,
               "a row of GGUF or NO_GGUF for each family");
