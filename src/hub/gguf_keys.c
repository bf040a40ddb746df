/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/gguf_keys.h"

#include <string.h>

enum { VALUE_U32 = 4, VALUE_BOOL = 7, VALUE_ARRAY = 9 };

void gguf_put_u32(struct str *s, uint32_t v)
{
    unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                          (unsigned char)(v >> 24)};
    str_add(s, b, sizeof b);
}
void gguf_put_u64(struct str *s, uint64_t v)
{
    gguf_put_u32(s, (uint32_t)v);
    gguf_put_u32(s, (uint32_t)(v >> 32));
}
void gguf_put_f32(struct str *s, double v)
{
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    gguf_put_u32(s, u);
}
void gguf_put_text(struct str *s, const char *text, size_t n)
{
    gguf_put_u64(s, n);
    str_add(s, text, n);
}

static void key(struct gguf_keys *k, const char *name, uint32_t type)
{
    size_t before = name[0] == '.' ? strlen(k->architecture) : 0;
    gguf_put_u64(&k->s, before + strlen(name));
    str_add(&k->s, k->architecture, before);
    str_puts(&k->s, name);
    gguf_put_u32(&k->s, type);
    k->n++;
}
void gguf_key_u32(struct gguf_keys *k, const char *name, int64_t v)
{
    key(k, name, VALUE_U32);
    gguf_put_u32(&k->s, (uint32_t)v);
}
void gguf_key_f32(struct gguf_keys *k, const char *name, double v)
{
    key(k, name, GGUF_VALUE_F32);
    gguf_put_f32(&k->s, v);
}
void gguf_key_bool(struct gguf_keys *k, const char *name, bool v)
{
    key(k, name, VALUE_BOOL);
    str_putc(&k->s, v);
}
void gguf_key_text(struct gguf_keys *k, const char *name, const char *v)
{
    key(k, name, GGUF_VALUE_STRING);
    gguf_put_text(&k->s, v, strlen(v));
}
void gguf_key_list(struct gguf_keys *k, const char *name, uint32_t type, uint64_t n)
{
    key(k, name, VALUE_ARRAY);
    gguf_put_u32(&k->s, type);
    gguf_put_u64(&k->s, n);
}
