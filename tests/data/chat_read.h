/* SPDX-License-Identifier: Apache-2.0 */
/* chat_read.h: records as conversations, for tests of what becomes of them. */
#ifndef TESTS_CHAT_READ_H
#define TESTS_CHAT_READ_H

#include "data_test.h"

#include "base/json.h"
#include "data/chat.h"

static inline int encode_code(const struct chat *c, const char *record, struct chat_tokens *out, struct err *e)
{
    struct json *v;
    if (json_parse(&v, record, strlen(record), "record", e)) fail_msg("%s", e->text);
    struct chat_work *w = chat_work_new(c);
    int code = chat_encode(w, v, "here", out, e);
    chat_work_free(w);
    json_free(v);
    return code;
}

static inline struct chat_tokens encode(const struct chat *c, const char *record)
{
    struct chat_tokens out = {0};
    struct err e;
    assert_ok(encode_code(c, record, &out, &e), &e);
    return out;
}

/* The text of all tokens, or of those that are trained on, with "|" where a stretch of them ends. The end of text,
 * where it is one's own, is "$". */
static inline struct str text_of(const struct tokenizer *t, const struct chat_tokens *x, bool trained)
{
    struct str s = {0};
    for (int64_t i = 0; i < x->ids.n; i++) {
        if (!trained || x->trained[i]) tokenizer_decode(t, &x->ids.ids[i], 1, true, &s);
        if (trained && x->trained[i] && (i + 1 == x->ids.n ? !x->ends_trained : !x->trained[i + 1])) str_putc(&s, '|');
    }
    if (trained && x->ends_trained) str_puts(&s, "$|");
    return s;
}

static inline void refused(const struct chat *c, const char *record, int code, const char *words)
{
    struct chat_tokens x = {0};
    struct err e = {0};
    check_error(encode_code(c, record, &x, &e), &e, code, words);
    chat_tokens_free(&x);
}

#endif
