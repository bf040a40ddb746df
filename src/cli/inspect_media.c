/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/inspect_media.h"

#include <math.h>
#include <stdio.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "media/media.h"

enum { BYTES_MOST = 1 << 30, SPEECH_RATE = 16000, BANDS = 80 };

bool inspect_is_media(const char *path) { return media_of_name(path) != NULL; }

/* A line for people, or members of the document. */
struct told {
    struct json_out *j; /* NULL: for people */
};

static void tell_image(const struct told *t, const struct image *m)
{
    if (!t->j) {
        printf("  pixels      %lld x %lld, %s\n", (long long)m->width, (long long)m->height,
               m->channels == 1 ? "gray" : "colour");
        return;
    }
    json_put_int(t->j, "width", m->width);
    json_put_int(t->j, "height", m->height);
    json_put_int(t->j, "channels", m->channels);
}

/* Also what a model of speech would hear of it. */
static int tell_audio(const struct told *t, struct audio *a, const struct media_limits *l, struct err *e)
{
    double seconds = (double)a->frames / a->rate, squares = 0;
    int64_t values = a->frames * a->channels, windows = 0;
    float *mel = NULL;
    for (int64_t i = 0; i < values; i++) squares += (double)a->p[i] * a->p[i];
    double rms = sqrt(squares / (double)values);
    if (t->j) {
        json_put_int(t->j, "rate", a->rate);
        json_put_int(t->j, "channels", a->channels);
        json_put_int(t->j, "frames", a->frames);
        json_put_real_digits(t->j, "rms", rms, 6);
    } else {
        printf("  sound       %d channels at %d a second, %.3f s (%lld frames), root mean square %.4f\n", a->channels,
               a->rate, seconds, (long long)a->frames, rms);
    }
    audio_to_mono(a);
    int code = audio_resample(a, SPEECH_RATE, l->max_samples, e);
    struct mel_config c = mel_usual(BANDS);
    if (!code && a->frames > c.window / 2) code = audio_mel(a, &c, &mel, &windows, e);
    xfree(mel);
    if (!code && t->j) json_put_int(t->j, "mel_windows", windows);
    else if (!code) printf("  log-mel     %d bands, %lld windows of 25 ms every 10 ms\n", BANDS, (long long)windows);
    return code;
}

static void tell_video(const struct told *t, const struct video *v)
{
    if (t->j) {
        json_put_int(t->j, "width", v->width);
        json_put_int(t->j, "height", v->height);
        json_put_real_digits(t->j, "rate", v->rate, 6);
        json_put_real_digits(t->j, "duration_s", v->duration_s, 6);
        json_begin_array(t->j, "times_s");
        for (int64_t i = 0; i < v->n; i++) json_put_real_digits(t->j, NULL, v->time_s[i], 6);
        json_end_array(t->j);
        return;
    }
    printf("  frames      %lld x %lld, %.3f a second, %.3f s; one a second: %lld\n", (long long)v->width,
           (long long)v->height, v->rate, v->duration_s, (long long)v->n);
    for (int64_t i = 0; i < v->n; i++)
        printf("    at %lld s: the one that begins at %.3f s\n", (long long)i, v->time_s[i]);
}

static int tell(const struct told *t, const struct media_row *row, const char *p, size_t n, struct err *e)
{
    struct media_limits l = media_limits_usual();
    struct image m;
    struct audio a;
    struct video v;
    int code;
    if (row->kind == MEDIA_IMAGE) {
        code = media_image(&m, p, n, 0, &l, e);
        if (!code) tell_image(t, &m);
        if (!code) image_free(&m);
    } else if (row->kind == MEDIA_AUDIO) {
        code = media_audio(&a, p, n, &l, e);
        if (code) return code;
        code = tell_audio(t, &a, &l, e);
        audio_free(&a);
    } else {
        code = media_video(&v, p, n, &(struct video_wish){.rate = 1, .most = 60}, &l, e);
        if (!code) tell_video(t, &v);
        if (!code) video_free(&v);
    }
    return code;
}

int inspect_media(const struct inspect_request *q, struct err *e)
{
    char *p;
    size_t n;
    if (q->html || q->tokens || q->show || q->verify || q->step || q->sample >= 0 || q->keys.n)
        return err_set(e, ERR_REQUEST,
                       "%s: is a file of media, of which nothing can be chosen; give --json or no option", q->what);
    int code = fs_read_all(q->what, BYTES_MOST, &p, &n, e);
    if (code) return code;
    const struct media_row *named = media_of_name(q->what), *row = media_of(p, n);
    struct str text = {0};
    struct json_out j = {.s = &text};
    struct told t = {q->json ? &j : NULL};
    if (!row) row = named; /* whose decoder says what is wrong */
    if (q->json) {
        json_begin_document(&j, "data-inspect-media", 1);
        json_put_string(&j, "path", q->what);
        json_put_string(&j, "format", row->name);
        json_put_int(&j, "file_bytes", (int64_t)n);
    } else {
        printf("%s\n  format      %s, %s, %lld bytes\n", q->what, row->name, media_kind_name(row->kind), (long long)n);
    }
    code = tell(&t, row, p, n, e);
    if (code) err_prefix(e, "%s", q->what);
    if (q->json) json_end_object(&j);
    if (q->json && !code) data_print_json(&text);
    str_free(&text);
    xfree(p);
    return code;
}
