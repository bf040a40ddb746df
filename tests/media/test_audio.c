/* SPDX-License-Identifier: Apache-2.0 */
/* Sound: what is written is read, of every kind that libsndfile has; rates; log-mel as numpy has it. Without libsndfile
 * its files are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "media/media.h"
#include "media/resize.h"

#include "media/pil_results.h"

static const struct media_limits usual = {.max_pixels = 1 << 24, .max_samples = 1 << 22, .max_frames = 1 << 12};

#if __has_include(<sndfile.h>)
#include <sndfile.h>

struct file {
    struct str s;
    sf_count_t at;
};
static sf_count_t length(void *of) { return (sf_count_t)((struct file *)of)->s.n; }
static sf_count_t seek(sf_count_t to, int whence, void *of)
{
    struct file *f = of;
    return f->at = to + (whence == SEEK_CUR ? f->at : whence == SEEK_END ? (sf_count_t)f->s.n : 0);
}
static sf_count_t take(void *to, sf_count_t n, void *of)
{
    struct file *f = of;
    sf_count_t left = (sf_count_t)f->s.n - f->at;
    if (n > left) n = left;
    memcpy(to, f->s.p + f->at, (size_t)n);
    f->at += n;
    return n;
}
static sf_count_t put(const void *p, sf_count_t n, void *of)
{
    struct file *f = of;
    while ((sf_count_t)f->s.n < f->at + n) str_putc(&f->s, 0);
    memcpy(f->s.p + f->at, p, (size_t)n);
    f->at += n;
    return n;
}
static sf_count_t tell(void *of) { return ((struct file *)of)->at; }

static void encode(struct str *out, int format, int rate, int channels, const float *p, int64_t frames)
{
    SF_VIRTUAL_IO io = {length, seek, take, put, tell};
    struct file f = {0};
    SF_INFO about = {.samplerate = rate, .channels = channels, .format = format};
    SNDFILE *s = sf_open_virtual(&io, SFM_WRITE, &about, &f);
    if (!s) fail_msg("%s", sf_strerror(NULL));
    assert_int_equal(sf_writef_float(s, p, frames), frames);
    sf_close(s);
    *out = f.s;
}

static const struct {
    int format;
    double bound; /* of the mean square of what differs; < 0: lengths alone */
} formats[] = {
    {SF_FORMAT_WAV | SF_FORMAT_FLOAT, 0},       {SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1e-8},
    {SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 1e-12}, {SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 1e-8},
    {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 1e-2},
};

static void test_formats(void **state)
{
    (void)state;
    enum { FRAMES = 70000 }; /* more than a piece */
    float *p = xmalloc(FRAMES * 2 * sizeof *p);
    for (int i = 0; i < FRAMES; i++) {
        p[2 * i] = (float)(0.5 * sin(i * 0.05));
        p[2 * i + 1] = (float)(0.3 * sin(i * 0.01));
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct str s;
        struct audio a;
        struct err e = {0};
        double wrong = 0;
        encode(&s, formats[i].format, 44100, 2, p, FRAMES);
        if (media_audio(&a, s.p, s.n, &usual, &e)) fail_msg("format %zu: %s", i, e.text);
        assert_int_equal(a.rate, 44100);
        assert_int_equal(a.channels, 2);
        assert_int_equal(a.frames, FRAMES);
        for (int k = 0; k < 2 * FRAMES; k++) wrong += (a.p[k] - p[k]) * (a.p[k] - p[k]) / (2 * FRAMES);
        if (wrong > formats[i].bound) fail_msg("format %zu: %g", i, wrong);
        audio_free(&a);
        struct media_limits small = usual;
        small.max_samples = 2 * FRAMES - 1;
        assert_int_equal(media_audio(&a, s.p, s.n, &small, &e), ERR_CORRUPT);
        for (size_t cut = 0; cut < s.n; cut += s.n / 40 + 1) { /* an error, or less sound; never more */
            char *part = xmalloc(cut + 1);
            memcpy(part, s.p, cut);
            if (!media_audio(&a, part, cut, &usual, &e)) assert_true(a.frames <= FRAMES);
            audio_free(&a);
            xfree(part);
        }
        str_free(&s);
    }
    xfree(p);
}
#else
static void test_formats(void **state)
{
    (void)state;
    struct audio a;
    struct err e = {0};
    assert_int_equal(media_audio(&a, "RIFF....WAVEfmt ", 16, &usual, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "libsndfile"));
}
#endif

static void test_rates(void **state)
{
    (void)state;
    static const int rates[][2] = {{44100, 16000}, {8000, 16000},  {48000, 16000},
                                   {16000, 44100}, {16000, 16000}, {3, 2}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        int from = rates[i][0], to = rates[i][1], n = 2000;
        double step = 2 * M_PI * 0.05 * (from < to ? from : to); /* a tone that both rates have */
        struct audio a = {.frames = n, .channels = 2, .rate = from, .p = xmalloc(2 * 2000 * sizeof(float))};
        struct err e = {0};
        for (int k = 0; k < n; k++) {
            a.p[2 * k] = (float)sin(step * k / from);
            a.p[2 * k + 1] = 0.25f;
        }
        assert_int_equal(audio_resample(&a, to, 1 << 20, &e), OK);
        assert_int_equal(a.frames, (int64_t)ceil((double)n * to / from));
        for (int64_t k = a.frames / 5; k < a.frames * 4 / 5; k++) {
            double d = fabs(a.p[2 * k] - sin(step * (double)k / to)), c = fabs(a.p[2 * k + 1] - 0.25);
            if (d > 0.01 || c > 0.005) fail_msg("%d to %d: frame %lld is off by %g, %g", from, to, (long long)k, d, c);
        }
        audio_free(&a);
    }
    struct audio a = {.frames = 100000, .channels = 1, .rate = 8000, .p = xcalloc(100000, sizeof(float))};
    struct err e = {0};
    assert_int_equal(audio_resample(&a, 0, 1 << 20, &e), ERR_REQUEST);
    assert_int_equal(audio_resample(&a, 768000, 1 << 20, &e), ERR_CORRUPT); /* ten million frames */
    a.rate = 767999;
    assert_int_equal(audio_resample(&a, 768000, 1 << 20, &e), ERR_CORRUPT); /* as many sets of weights */
    audio_free(&a);
}

static void test_mono(void **state)
{
    (void)state;
    struct audio a = {.frames = 2, .channels = 3, .rate = 1, .p = xmalloc(6 * sizeof(float))};
    for (int i = 0; i < 6; i++) a.p[i] = (float)i;
    audio_to_mono(&a);
    assert_true(a.channels == 1 && a.p[0] == 1 && a.p[1] == 4);
    audio_free(&a);
}

static void test_mel(void **state)
{
    (void)state;
    struct audio a = {.frames = 16000, .channels = 1, .rate = 16000, .p = xmalloc(16000 * sizeof(float))};
    struct mel_config c = mel_usual(80);
    struct err e = {0};
    float *mel;
    int64_t n;
    for (int i = 0; i < 16000; i++)
        a.p[i] = (float)(0.5 * sin(2 * M_PI * 440 * i / 16000) + 0.25 * sin(2 * M_PI * (200 + i / 16.0) * i / 16000));
    assert_int_equal(audio_mel(&a, &c, &mel, &n, &e), OK);
    assert_int_equal(n, 100);
    for (size_t i = 0; i < sizeof numpy_mel / sizeof *numpy_mel; i++) {
        double got = mel[numpy_mel[i].band * n + numpy_mel[i].window];
        if (fabs(got - numpy_mel[i].value) > 1e-5)
            fail_msg("band %d of window %d: %.9g, numpy has %.9g", numpy_mel[i].band, numpy_mel[i].window, got,
                     numpy_mel[i].value);
    }
    xfree(mel);
    c.whisper = false;
    assert_int_equal(audio_mel(&a, &c, &mel, &n, &e), OK);
    assert_int_equal(n, 101);
    xfree(mel);
    a.frames = 200;
    assert_int_equal(audio_mel(&a, &c, &mel, &n, &e), ERR_REQUEST);
    a.frames = 16000;
    a.rate = 8000;
    assert_int_equal(audio_mel(&a, &c, &mel, &n, &e), ERR_REQUEST);
    assert_null(mel);
    a.rate = 16000;
    c.bands = 100000;
    assert_int_equal(audio_mel(&a, &c, &mel, &n, &e), ERR_REQUEST);
    audio_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats), cmocka_unit_test(test_rates),
                                       cmocka_unit_test(test_mono), cmocka_unit_test(test_mel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
