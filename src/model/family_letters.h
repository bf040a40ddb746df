/* SPDX-License-Identifier: Apache-2.0 */
/* family_letters.h: sets of model families as letters, for the columns of tables (model/numbers.def,
 * checkpoint/hf_keys.c). Names of one letter: include it in the file of a table, never in a header. Includes:
 * numbers.h. Order: Local.
 */
#ifndef TUTTI_MODEL_FAMILY_LETTERS_H
#define TUTTI_MODEL_FAMILY_LETTERS_H

#include "model/numbers.h"

enum {
    G = 1 << HF_GPT2,
    L = 1 << HF_LLAMA,
    M = 1 << HF_MIXTRAL,
    D2 = 1 << HF_DEEPSEEK_V2,
    D3 = 1 << HF_DEEPSEEK_V3,
    D = D2 | D3,
    R = L | M | D, /* those with rotary positions */
    V = 1 << HF_VIT,
    TEXTS = G | R,
    ALL = TEXTS | V
};

#endif
