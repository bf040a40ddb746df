/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_keys.h: keys and values of a GGUF file's head, little-endian, one after the other: of a value its type before
 * it, of a text its length in bytes. Includes: base. Order: Local.
 */
#ifndef TUTTI_HUB_GGUF_KEYS_H
#define TUTTI_HUB_GGUF_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* The format's numbers of types that stand in lists. */
enum { GGUF_VALUE_I32 = 5, GGUF_VALUE_F32 = 6, GGUF_VALUE_STRING = 8 };

struct gguf_keys {
    struct str s;
    uint64_t n;
    const char *architecture; /* stands before names that begin with a dot; borrowed */
};

void gguf_put_u32(struct str *s, uint32_t v);
void gguf_put_u64(struct str *s, uint64_t v);
void gguf_put_f32(struct str *s, double v);
void gguf_put_text(struct str *s, const char *text, size_t n);
void gguf_key_u32(struct gguf_keys *k, const char *name, int64_t v);
void gguf_key_f32(struct gguf_keys *k, const char *name, double v);
void gguf_key_bool(struct gguf_keys *k, const char *name, bool v);
void gguf_key_text(struct gguf_keys *k, const char *name, const char *v);
/* n values of a type follow, put by the caller. */
void gguf_key_list(struct gguf_keys *k, const char *name, uint32_t type, uint64_t n);

#endif
