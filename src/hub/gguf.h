/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h: a model as a GGUF file (version 3), which llama.cpp and its relatives read. Which families: gguf_family.h;
 * which tokenizers: gguf_tokens.h.
 *
 * Matrices are f32, bf16 or q8_0 (blocks of 32 numbers of 8 bits with an f16 scale); those whose rows are no multiple
 * of 32 stay f32 in q8_0; vectors, routers and tables of positions are always f32. What the format cannot say is
 * refused by name. A tensor is held whole, one at a time; of experts one expert. Includes: base, hub/weights.h.
 * Order: Local.
 */
#ifndef TUTTI_HUB_GGUF_H
#define TUTTI_HUB_GGUF_H

#include "hub/weights.h"

enum gguf_type { GGUF_F32, GGUF_BF16, GGUF_Q8_0 };
/* name: what the model is called in it. A file at path is replaced when all is written. */
int gguf_export(struct weights *w, const char *path, const char *name, enum gguf_type type, struct err *e);

#endif
