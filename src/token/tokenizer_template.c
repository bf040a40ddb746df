/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_template.c: what a tokenizer.json puts around a text (post_processor).
 *
 * That is the whole rule for start tokens: the `tokenizers` library puts there what the template says, and transformers
 * takes a tokenizer.json at its word, whatever add_bos_token beside it says. Of a Sequence one step may put tokens
 * around a text: what the library makes of several hangs on their kinds (a second template is passed over, or ends it),
 * so they are refused.
 */
#include <string.h>

#include "token/token_bounds.h"
#include "token/tokenizer_read.h"

enum { BEGIN_MAX = 16 /* tokens before a text; published ones have two at most */ };

/* Being read. */
struct template
{
    const char *what;
    int64_t vocab;
    struct tokens *begin;
    int32_t *end;
    int steps; /* that put tokens around a text */
    struct err *e;
};

static int corrupt(const struct template *x, const char *why)
{
    return err_set(x->e, ERR_CORRUPT, "%s: post_processor: %s", x->what, why);
}

/* The ids that a special token of a template stands for: "special_tokens" says them. */
static int ids_of(const struct template *x, const struct json *template, const struct json *name, bool before)
{
    size_t n = 0;
    const char *text = json_string(name, &n, NULL);
    const struct json *list = json_get(text ? json_get(json_get(template, "special_tokens"), text) : NULL, "ids");
    if (!list || !json_size(list))
        return err_set(x->e, ERR_CORRUPT, "%s: post_processor: special_tokens: has no ids of \"%.60s\"", x->what,
                       text ? text : "(no text)");
    if (json_size(list) > BEGIN_MAX) return corrupt(x, "special_tokens: more than 16 ids of one");
    for (size_t i = 0; i < json_size(list); i++) {
        int64_t id = json_int(json_at(list, i), -1);
        if (id < 0 || id >= x->vocab)
            return err_set(x->e, ERR_CORRUPT, "%s: post_processor: special_tokens: \"%.60s\" is token %lld of %lld",
                           x->what, text, (long long)id, (long long)x->vocab);
        if (before) tokens_push(x->begin, (int32_t)id);
        else *x->end = (int32_t)id;
    }
    return x->begin->n > BEGIN_MAX ? corrupt(x, "more than 16 tokens before a text") : OK;
}

/* {"single": [{"SpecialToken": {"id": "<s>", ...}}, {"Sequence": {"id": "A", ...}}, ...], "special_tokens": ...} */
static int read_template(const struct template *x, const struct json *v)
{
    const struct json *single = json_get(v, "single");
    bool before = true;
    int code = json_size(single) > TEMPLATE_MAX ? corrupt(x, "single: more than 64 members") : OK;
    for (size_t i = 0; i < json_size(single) && !code; i++) {
        const struct json *token = json_get(json_at(single, i), "SpecialToken");
        if (token) code = ids_of(x, v, json_get(token, "id"), before);
        else before = false;
    }
    return code;
}

/* {"sep": ["[SEP]", 102], "cls": ["[CLS]", 101]} */
static int read_pair(const struct template *x, const struct json *v)
{
    int64_t first = json_int(json_at(json_get(v, "cls"), 1), -1), last = json_int(json_at(json_get(v, "sep"), 1), -1);
    if (first < 0 || last < 0 || first >= x->vocab || last >= x->vocab)
        return corrupt(x, "wanted \"cls\" and \"sep\", tokens of the vocabulary with their ids");
    tokens_push(x->begin, (int32_t)first);
    *x->end = (int32_t)last;
    return OK;
}

static int read_step(struct template *x, const struct json *v)
{
    const char *type = json_type(v);
    if (!strcmp(type, "ByteLevel")) return OK; /* offsets, which nobody asks for here */
    bool template = !strcmp(type, "TemplateProcessing"),
         pair = !strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing");
    if (!template && !pair)
        return err_set(x->e, ERR_REQUEST, "%s: post_processor: \"%.80s\" is not supported", x->what, type);
    if (x->steps++)
        return err_set(x->e, ERR_REQUEST,
                       "%s: post_processor: two steps that put tokens around a text are not supported; leave one",
                       x->what);
    return template ? read_template(x, v) : read_pair(x, v);
}

static int read_steps(struct template *x, const struct json *v, int depth)
{
    if (strcmp(json_type(v), "Sequence") != 0 || depth >= 8) return read_step(x, v);
    const struct json *list = json_get(v, "processors");
    if (!json_is(list, JSON_ARRAY)) return corrupt(x, "wanted a list of steps");
    int code = OK;
    for (size_t i = 0; i < json_size(list) && !code; i++) code = read_steps(x, json_at(list, i), depth + 1);
    return code;
}

int tokenizer_template(const struct json *root, int64_t vocab, const char *what, struct tokens *begin, int32_t *end,
                       struct err *e)
{
    const struct json *v = json_get(root, "post_processor");
    struct template x = {.what = what, .vocab = vocab, .begin = begin, .end = end, .e = e};
    *end = -1;
    return json_is_set(v) ? read_steps(&x, v, 0) : OK;
}
