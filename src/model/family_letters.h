/* SPDX-License-Identifier: Apache-2.0 */
/* family_letters.h: sets of model families as letters, for the columns of tables (model/numbers.def,
 * hub/hf_keys.c). Names of one letter: include it in the file of a table, never in a header. Includes:
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
    MI = 1 << HF_MISTRAL,
    Q2 = 1 << HF_QWEN2,
    Q3 = 1 << HF_QWEN3,
    QM = 1 << HF_QWEN3_MOE,
    SM = 1 << HF_SMOLLM3,
    O2 = 1 << HF_OLMO2,
    PH = 1 << HF_PHI3,
    G2 = 1 << HF_GEMMA2,
    G3 = 1 << HF_GEMMA3,
    GM = G2 | G3,
    GO = 1 << HF_GPT_OSS,
    Q = Q2 | Q3 | QM,
    W = MI | Q | SM | PH | GM | GO, /* those whose layers may look at what is near only */
    R = L | M | D | W | O2,         /* those with rotary positions */
    V = 1 << HF_VIT,
    B = 1 << HF_BERT,
    MB = 1 << HF_MAMBA2,
    LV = 1 << HF_LLAVA,
    NH = 1 << HF_NEMOTRON_H,
    T = 1 << HF_T5,
    TEXTS = G | R | B | MB | NH | T,
    ALL = TEXTS | V | LV
};

#endif
