/* SPDX-License-Identifier: Apache-2.0 */
#include "run/samples.h"

#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/append.h"
#include "run/generate.h"
#include "config/start_weights.h"

static bool collect(void *ctx, const char *text, size_t n)
{
    str_add(ctx, text, n);
    return true;
}

static int write_text(const struct config *c, const char *checkpoint, struct str *out, struct err *e)
{
    struct weights *w = NULL;
    struct tokenizer *t = NULL;
    struct device *d = NULL;
    struct generator *g = NULL;
    struct generate_result r;
    const struct sample_spec spec = {.temperature = c->run.sample_temperature,
                                     .top_p = 1,
                                     .seed = (uint64_t)c->run.seed};
    const char *prompt = c->run.sample_prompt;
    int threads = c->run.threads ? (int)c->run.threads : thread_n_cores();
    int rc = weights_open(&w, checkpoint, e);
    if (!rc) rc = source_tokenizer(w, &t, e);
    if (!rc) rc = device_cpu_new(&d, threads, e);
    if (!rc) rc = generator_new(&g, w, d, threads, (int64_t)strlen(prompt) + c->run.sample_tokens + 1, DT_BF16, e);
    if (!rc) rc = generate(g, t, prompt, c->run.sample_tokens, &spec, collect, out, &r, e);
    generator_free(g);
    if (d) device_free(d);
    tokenizer_free(t);
    weights_close(w);
    return rc;
}

/* The text of several lines as a part of its own in a log of lines. */
static void show(int64_t step, const char *prompt, const char *text)
{
    struct str whole = {0}, shown = {0};
    str_printf(&whole, "%s%s", prompt, text);
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

int samples_write(const struct config *c, const char *checkpoint, int64_t step, struct err *e)
{
    struct str text = {0}, line = {0};
    int rc = write_text(c, checkpoint, &text, e);
    if (!rc) {
        show(step, c->run.sample_prompt, str_text(&text));
        struct json_out o = {.s = &line};
        json_begin_object(&o, NULL);
        json_put_int(&o, "step", step);
        json_put_string(&o, "prompt", c->run.sample_prompt);
        json_put_string(&o, "text", str_text(&text));
        json_end_object(&o);
        rc = append_line(c->run.dir, "samples.jsonl", &line, e);
    }
    str_free(&text);
    str_free(&line);
    return rc;
}
