/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chat.c: any bytes as a record: refused with its place, or tokens that spell the text, each trained on or not. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "data/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void encode(const struct tokenizer *t, const char *template, enum chat_side side, const struct json *record)
{
    struct chat *c;
    struct err e = {0};
    struct chat_tokens out = {0};
    struct str text = {0};
    CHECK(!chat_open(&c, &(struct chat_rules){template, NULL, CHAT_ANSWERS, side, 0, 0, 0, CHAT_TODAY}, t, &e), "%s",
          e.text);
    struct chat_work *w = chat_work_new(c);
    if (chat_encode(w, record, "fuzz", &out, &e)) {
        CHECK(!strncmp(e.text, "fuzz: ", 6), "an error without its place: %s", e.text);
    } else {
        for (int64_t i = 0; i < out.ids.n; i++) {
            CHECK(out.ids.ids[i] >= 0 && out.ids.ids[i] < tokenizer_vocab(t), "id %d", out.ids.ids[i]);
            CHECK(out.trained[i] < 2, "trained %d", out.trained[i]);
        }
        tokenizer_decode(t, out.ids.ids, out.ids.n, true, &text);
    }
    chat_tokens_free(&out);
    chat_work_free(w);
    chat_close(c);
    str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json *record;
    struct err e = {0};
    if (n > 20000 || json_parse_published(&record, (const char *)data, n, "fuzz.json", &e)) return 0;
    struct tokenizer *t = tokenizer_new_byte();
    for (int side = CHAT_PLAIN; side <= CHAT_REJECTED; side++) {
        encode(t, "plain", (enum chat_side)side, record);
        encode(t, "llama2", (enum chat_side)side, record);
    }
    tokenizer_free(t);
    json_free(record);
    return 0;
}
