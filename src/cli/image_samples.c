/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/image_samples.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/shown.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "explain/sample_view.h"
#include "media/media.h"

/* Sample k of the order. */
struct sample {
    int64_t k, epoch, number; /* number: in its source */
    int source;
    struct image_place at;
    struct str key; /* safe to print */
};

static int find(struct sample *s, const struct dataset *d, int64_t k, struct err *e)
{
    struct str raw = {0};
    *s = (struct sample){.k = k};
    dataset_where(d, k, &s->source, &s->epoch, &s->number);
    struct image_index *x = dataset_images(d, s->source);
    int code = image_index_where(x, s->number, &s->at, e);
    if (!code) code = image_index_key(x, &s->at, &raw, e);
    if (!code) shown_put(&s->key, str_text(&raw), raw.n, false);
    str_free(&raw);
    return code;
}

static void put_place(struct json_out *j, const struct sample *s)
{
    json_put_string(j, "shard", s->at.shard);
    json_put_string(j, "key", str_text(&s->key));
    json_put_int(j, "shard_byte", s->at.offset);
    json_put_int(j, "bytes", s->at.bytes);
    json_put_int(j, "label", s->at.label);
}

/* ---- inspect ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* RFC 4648. */
static void put_base64(struct str *out, const struct str *s)
{
    const unsigned char *p = (const unsigned char *)s->p;
    for (size_t i = 0; i < s->n; i += 3) {
        unsigned v =
            (unsigned)p[i] << 16 | (i + 1 < s->n ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < s->n ? p[i + 2] : 0u);
        for (int k = 0; k < 4; k++) str_putc(out, (size_t)k > s->n - i ? '=' : digits[v >> (18 - 6 * k) & 63]);
    }
}

static void put_escaped(struct str *out, const char *text)
{
    for (; *text; text++)
        if (strchr("<>&\"", *text)) str_printf(out, "&#%d;", *text);
        else str_putc(out, *text);
}

static int show(const struct inspect_request *q, const struct dataset *d, const struct config *c, int64_t k,
                struct str *text, struct json_out *j, struct err *e)
{
    struct sample s;
    struct image seen;
    struct image_about about;
    struct str png = {0};
    int code = find(&s, d, k, e);
    if (!code)
        code = image_view(dataset_images(d, s.source), dataset_image_rule(d), s.number, (uint64_t)c->data.seed,
                          (uint64_t)k, &seen, &about, e);
    if (code) {
        str_free(&s.key);
        return code;
    }
    const char *colour = about.channels == 1 ? "gray" : "colour";
    if (q->json) {
        json_begin_object(j, NULL);
        json_put_int(j, "sample", k);
        put_place(j, &s);
        json_put_string(j, "format", about.format);
        json_put_int(j, "width", about.width);
        json_put_int(j, "height", about.height);
        json_put_int(j, "channels", about.channels);
        json_end_object(j);
    } else if (q->html) {
        image_png_write(&png, &seen);
        str_puts(text, "<figure><img alt=\"\" src=\"data:image/png;base64,");
        put_base64(text, &png);
        str_printf(text, "\"><figcaption>%lld: <b>%d</b> ", (long long)k, s.at.label);
        put_escaped(text, str_text(&s.key));
        str_printf(text, "<br><small>%s, %lld x %lld, %s</small></figcaption></figure>\n", about.format,
                   (long long)about.width, (long long)about.height, colour);
    } else {
        str_printf(text, "sample %lld: label %d, %s of %lld x %lld, %s, %lld bytes: %s of %s at byte %lld\n",
                   (long long)k, s.at.label, about.format, (long long)about.width, (long long)about.height, colour,
                   (long long)about.bytes, str_text(&s.key), s.at.shard, (long long)s.at.offset);
    }
    str_free(&png);
    str_free(&s.key);
    image_free(&seen);
    return OK;
}

int image_samples_inspect(const struct inspect_request *q, const struct config *c, const struct dataset *d,
                          struct err *e)
{
    int64_t global = c->batch.global, step = q->step ? q->step - 1 : 0, one = q->sample;
    struct str text = {0}, title = {0};
    struct json_out j = {.s = &text};
    if (q->tokens)
        return err_set(e, ERR_REQUEST, "--tokens: this config's samples are pictures, which have none; leave it out");
    if (one >= global)
        return err_set(e, ERR_REQUEST, "--sample %lld: step %lld has samples 0 to %lld (batch.global)", (long long)one,
                       (long long)step + 1, (long long)global - 1);
    str_printf(&title, "step %lld of %s", (long long)step + 1, q->what);
    if (q->json) {
        json_begin_document(&j, "data-inspect-samples", 1);
        json_put_string(&j, "of", str_text(&title));
        json_begin_array(&j, "samples");
    } else if (q->html) {
        str_puts(&text, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
        put_escaped(&text, str_text(&title));
        str_puts(&text,
                 "</title>\n<style>body{font:15px/1.4 system-ui,sans-serif;margin:2em}figure{display:inline-block;"
                 "margin:.5em;vertical-align:top}img{min-width:8em;image-rendering:pixelated}</style></head><body>\n"
                 "<h1>");
        put_escaped(&text, str_text(&title));
        str_puts(&text, "</h1>\n<p>What the model sees of each sample, and its class.</p>\n");
    } else {
        str_printf(&text, "%s\n\n", str_text(&title));
    }
    int code = OK;
    for (int64_t row = 0; row < global && !code; row++)
        if (one < 0 || row == one) code = show(q, d, c, step * global + row, &text, &j, e);
    if (!code && q->json) {
        json_end_array(&j);
        json_end_object(&j);
        data_print_json(&text);
    } else if (!code && q->html) {
        str_puts(&text, "</body></html>\n");
        code = fs_write_atomic(q->html, str_text(&text), text.n, e);
        if (!code) printf("%s\n", q->html);
    } else if (!code) {
        fwrite(str_text(&text), 1, text.n, stdout);
    }
    str_free(&text);
    str_free(&title);
    return code;
}

/* ---- ledger ---- */

static void tell_sources(const struct dataset *d, int64_t k, struct json_out *j)
{
    if (j) json_begin_array(j, "sources");
    else printf("used before:\n");
    for (int i = 0; i < dataset_n_sources(d); i++) {
        double epochs;
        int64_t samples = dataset_used(d, k, i, &epochs);
        const char *path = dataset_source_name(d, i);
        if (!j) {
            printf("  %s: %lld samples, %.4f epochs\n", path, (long long)samples, epochs);
        } else {
            json_begin_object(j, NULL);
            json_put_string(j, "path", path);
            json_put_int(j, "samples", samples);
            json_put_real_digits(j, "epochs", epochs, 6);
            json_end_object(j);
        }
    }
    if (j) json_end_array(j);
}

int image_samples_ledger(const struct config *c, const struct dataset *d, int64_t step, const char *left_out, bool json,
                         struct err *e)
{
    int64_t global = c->batch.global, first = (step - 1) * global;
    struct str text = {0};
    struct json_out j = {.s = &text};
    int code = OK;
    if (json) {
        json_begin_document(&j, "data-ledger", 1);
        json_put_int(&j, "step", step);
        data_tell_left_out(c, left_out, &j);
        json_begin_array(&j, "samples");
    } else {
        data_tell_left_out(c, left_out, NULL);
        printf("step %lld: samples %lld to %lld of the order\n", (long long)step, (long long)first,
               (long long)(first + global - 1));
    }
    for (int64_t k = first; k < first + global && !code; k++) {
        struct sample s;
        code = find(&s, d, k, e);
        if (!code && json) {
            json_begin_object(&j, NULL);
            json_put_int(&j, "sample", k);
            json_put_int(&j, "source", s.source);
            json_put_int(&j, "epoch", s.epoch);
            json_put_int(&j, "of_source", s.number);
            put_place(&j, &s);
            json_end_object(&j);
        } else if (!code) {
            printf("  sample %lld: %s of %s, bytes %lld to %lld, label %d; epoch %lld, sample %lld of %lld\n",
                   (long long)k, str_text(&s.key), s.at.shard, (long long)s.at.offset,
                   (long long)(s.at.offset + s.at.bytes), s.at.label, (long long)s.epoch, (long long)s.number,
                   (long long)image_index_n(dataset_images(d, s.source)));
        }
        str_free(&s.key);
    }
    if (!code && json) json_end_array(&j);
    if (!code) tell_sources(d, first, json ? &j : NULL);
    if (!code && json) {
        json_end_object(&j);
        data_print_json(&text);
    }
    str_free(&text);
    return code;
}
