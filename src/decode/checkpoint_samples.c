/* SPDX-License-Identifier: Apache-2.0 */
#include "decode/checkpoint_samples.h"

#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/append.h"
#include "decode/generate.h"
#include "config/start_weights.h"

static bool collect(void *ctx, const char *text, size_t n)
{
    str_add(ctx, text, n);
    return true;
}

struct writer {
    struct weights *w;
    struct tokenizer *t;
    struct device *d;
    struct generator *g;
};

static int writer_open(struct writer *x, const struct config *c, const char *checkpoint, const char *const *prompts,
                       int n, struct err *e)
{
    int threads = c->run.threads ? (int)c->run.threads : thread_n_cores();
    int64_t longest = 0;
    for (int i = 0; i < n; i++)
        if ((int64_t)strlen(prompts[i]) > longest) longest = (int64_t)strlen(prompts[i]);
    int rc = weights_open(&x->w, checkpoint, e);
    if (!rc) rc = source_tokenizer(x->w, &x->t, e);
    if (!rc) rc = device_open(&x->d, config_device(c), threads, e);
    if (!rc) rc = generator_new(&x->g, x->w, x->d, threads, longest + c->run.sample_tokens + 1, DT_BF16, e);
    return rc;
}

static void writer_close(struct writer *x)
{
    generator_free(x->g);
    if (x->d) device_free(x->d);
    tokenizer_free(x->t);
    weights_close(x->w);
}

/* read: the text answers the prompt, and does not go on with it. The text of several lines as a part of its own in a
 * log of lines. */
static void show(int64_t step, const char *prompt, bool read, const char *text)
{
    struct str whole = {0}, shown = {0};
    str_printf(&whole, "%s%s%s", prompt, read ? " -> " : "", text);
    while (whole.n && whole.p[whole.n - 1] == '\n') whole.p[--whole.n] = 0;
    for (const char *line = str_text(&whole), *end; line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        str_puts(&shown, "\n    | ");
        str_add(&shown, line, end ? (size_t)(end - line) : strlen(line));
    }
    log_status_end();
    log_info("step %lld writes%s", (long long)step, str_text(&shown));
    str_free(&whole);
    str_free(&shown);
}

static int write_one(struct writer *x, const struct config *c, int64_t step, const char *prompt, struct err *e)
{
    struct str text = {0}, line = {0};
    struct generate_result r;
    const struct sample_spec spec = {.temperature = c->run.sample_temperature,
                                     .top_p = 1,
                                     .seed = (uint64_t)c->run.seed};
    int rc = generate(x->g, x->t, prompt, c->run.sample_tokens, &spec, collect, &text, &r, e);
    if (!rc) {
        show(step, prompt, model_pairs(&c->model), str_text(&text));
        struct json_out o = {.s = &line};
        json_begin_object(&o, NULL);
        json_put_int(&o, "step", step);
        json_put_string(&o, "prompt", prompt);
        json_put_string(&o, "text", str_text(&text));
        json_end_object(&o);
        rc = append_line(c->run.dir, "samples.jsonl", &line, e);
    }
    str_free(&text);
    str_free(&line);
    return rc;
}

int checkpoint_samples_write(const struct config *c, const char *checkpoint, int64_t step, const char *const *prompts,
                             int n, struct err *e)
{
    struct writer x = {0};
    int rc = writer_open(&x, c, checkpoint, prompts, n, e);
    for (int i = 0; i < n && !rc; i++) rc = write_one(&x, c, step, prompts[i], e);
    writer_close(&x);
    return rc;
}
