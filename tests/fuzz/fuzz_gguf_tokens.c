/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_gguf_tokens.c: any bytes as a tokenizer.json that a GGUF shall have: refused with words that name the file, or
 * keys of which each ends where it says. */
#include <string.h>

#include "base/mem.h"
#include "hub/gguf_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t number(const struct str *s, size_t *at, size_t bytes)
{
    uint64_t v = 0;
    CHECK(bytes <= s->n - *at, "a number behind the end");
    for (size_t i = 0; i < bytes; i++) v |= (uint64_t)(unsigned char)s->p[(*at)++] << (8 * i);
    return v;
}
static void skip(const struct str *s, size_t *at, uint64_t bytes)
{
    CHECK(bytes <= s->n - *at, "a value behind the end");
    *at += bytes;
}
static void skip_value(const struct str *s, size_t *at, uint64_t type)
{
    skip(s, at, type == GGUF_VALUE_STRING ? number(s, at, 8) : type == 7 ? 1 : 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const enum model_family families[] = {MODEL_LLAMA, MODEL_PHI3};
    for (size_t f = 0; f < 2; f++) {
        struct hf_model m = {.model = {.family = families[f], .vocab = 40},
                             .bos = (int64_t)f - 1,
                             .eos = {1},
                             .n_eos = 1};
        struct gguf_keys k = {.architecture = "llama"};
        struct err e = {0};
        int rc = gguf_tokens(&k, &m, (const char *)data, n, &e);
        CHECK(!rc || strstr(e.text, "tokenizer.json"), "an error without its place: %s", e.text);
        size_t at = 0;
        for (uint64_t i = 0; i < k.n && !rc; i++) {
            skip(&k.s, &at, number(&k.s, &at, 8));
            uint64_t type = number(&k.s, &at, 4), count = 1;
            bool list = type == 9;
            if (list) type = number(&k.s, &at, 4), count = number(&k.s, &at, 8);
            for (uint64_t v = 0; v < count; v++) skip_value(&k.s, &at, type);
        }
        CHECK(rc || at == k.s.n, "%zu of %zu bytes are keys", at, k.s.n);
        str_free(&k.s);
    }
    return 0;
}
