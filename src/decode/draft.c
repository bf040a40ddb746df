/* SPDX-License-Identifier: Apache-2.0 */
#include "decode/draft.h"

#include <string.h>

#include "config/start_weights.h"

int draft_same_tokens(const struct tokenizer *draft, const struct tokenizer *model, struct err *e)
{
    if (tokenizer_vocab(draft) != tokenizer_vocab(model))
        return err_set(e, ERR_REQUEST,
                       "its tokenizer has %d tokens, and the model's %d; give a draft with the model's "
                       "tokenizer, or ngram",
                       tokenizer_vocab(draft), tokenizer_vocab(model));
    for (int32_t id = 0; id < tokenizer_vocab(model); id++) {
        size_t n, m;
        const char *a = tokenizer_piece(draft, id, &n), *b = tokenizer_piece(model, id, &m);
        if (n != m || memcmp(a, b, n))
            return err_set(e, ERR_REQUEST,
                           "token %d is '%.*s' there, and '%.*s' of the model; give a draft with the model's "
                           "tokenizer, or ngram",
                           id, n < 40 ? (int)n : 40, a, m < 40 ? (int)m : 40, b);
    }
    return OK;
}

static int open_model(struct draft *x, const char *path, const struct hf_ignore *ignore, const struct model_at_work *m,
                      const struct decoding_options *o, struct err *e)
{
    struct tokenizer *t = NULL;
    int rc = weights_open_ignoring(&x->weights, path, ignore, e);
    if (!rc) rc = source_tokenizer(x->weights, &t, e);
    if (!rc) rc = draft_same_tokens(t, m->tokenizer, e);
    tokenizer_free(t);
    return rc ? rc : decoding_new(&x->decoding, x->weights, m->device, o, e);
}

int draft_open(struct draft *x, const char *path, const struct hf_ignore *ignore, const struct model_at_work *m,
               const struct decoding_options *o, struct err *e)
{
    *x = (struct draft){0};
    int rc = open_model(x, path, ignore, m, o, e);
    if (!rc) return OK;
    draft_close(x);
    return err_prefix(e, "draft %s", path);
}

void draft_close(struct draft *x)
{
    decoding_free(x->decoding);
    weights_close(x->weights);
    *x = (struct draft){0};
}
