/* SPDX-License-Identifier: Apache-2.0 */
/* family_letters.h: sets of Hugging Face's families as letters, for the columns of tables (model/numbers.def,
 * hub/hf_keys.c). Names of one letter: include it in the file of a table, never in a header. Includes:
 * numbers.h. Order: Local.
 */
#ifndef TUTTI_MODEL_FAMILY_LETTERS_H
#define TUTTI_MODEL_FAMILY_LETTERS_H

#include "model/numbers.h"

/* clang-format off */
enum {
#define FAMILY(id, word, blocks, ...) MADE_OF_##id = BLOCKS_##blocks,
#include "model/families.def"
};
enum {
#define MODEL_TYPE(id, letters, ...) letters = 1 << HF_##id,
#include "model/families.def"
    D = D2 | D3,
    GM = G2 | G3,
    Q = Q2 | Q3 | QM,
    ALL = (1 << HF_N) - 1,
    TEXTS = ALL & ~(V | LV),
    R = 0 /* those with rotary positions */
#define MODEL_TYPE(id, letters, family, ...) | ((int)MADE_OF_##family == (int)BLOCKS_DECODER) << HF_##id
#include "model/families.def"
    ,
    W = 0 /* those whose layers may look at what is near only */
#define MODEL_TYPE(id, letters, family, type, writes, scores, settle, names, windows)                                  \
    | (WINDOWS_##windows != WINDOWS_NONE) << HF_##id
#include "model/families.def"
};
/* clang-format on */

#endif
