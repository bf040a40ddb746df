/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer.c: any bytes as a tokenizer.json: refused with words, or a tokenizer whose ids exist, do not depend on
 * how text is parted, and that writes itself down and reads itself back.
 */
#include <string.h>

#include "base/mem.h"
#include "token/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char text[] = "The quick brown fox, isn't it?  12345\r\n\tint x = 7;\n\n\xC3\xA9\xE4\xBD\xA0 "
                           "\xF0\x9F\x98\x80 \xFF\xC0 <|endoftext|> <mask> <pad>  x\xE2\x82";

/* Ids of the text fed in parts; false when the tokenizer's expression gives up on it. */
static bool encode(const struct tokenizer *t, size_t part, struct tokens *ids)
{
    struct encoder *c = encoder_new(t);
    struct err e;
    int code = OK;
    for (size_t at = 0; at < sizeof text && !code; at += part)
        code = encoder_feed(c, text + at, sizeof text - at < part ? sizeof text - at : part, ids, &e);
    if (!code) code = encoder_end(c, ids, &e);
    encoder_free(c);
    return !code;
}

static void use(const struct tokenizer *t)
{
    struct tokens whole = {0}, parts = {0};
    struct str back = {0};
    bool good = encode(t, sizeof text, &whole);
    if (good && encode(t, 5, &parts)) {
        CHECK(whole.n == parts.n &&
                  (whole.n == 0 || !memcmp(whole.ids, parts.ids, (size_t)whole.n * sizeof *whole.ids)),
              "%lld ids at once, %lld in parts", (long long)whole.n, (long long)parts.n);
        for (int64_t i = 0; i < whole.n; i++)
            CHECK(whole.ids[i] >= 0 && whole.ids[i] < tokenizer_vocab(t), "id %d of %d", whole.ids[i],
                  tokenizer_vocab(t));
        tokenizer_decode(t, whole.ids, whole.n, true, &back);
        struct decoder d = {.t = t};
        for (int64_t i = 0; i < whole.n; i++) decoder_push(&d, whole.ids[i], &back);
        decoder_end(&d, &back);
    }
    tokens_free(&whole);
    tokens_free(&parts);
    str_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tokenizer *t;
    struct err e = {0};
    if (tokenizer_parse(&t, (const char *)data, n, "fuzz.json", &e)) {
        CHECK(!t && strstr(e.text, "fuzz.json"), "an error without its place: %s", e.text);
        return 0;
    }
    CHECK(tokenizer_eos(t) < tokenizer_vocab(t) && tokenizer_bos(t) < tokenizer_vocab(t), "ends %d %d of %d",
          tokenizer_eos(t), tokenizer_bos(t), tokenizer_vocab(t));
    use(t);
    tokenizer_free(t);
    return 0;
}
