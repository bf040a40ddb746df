/* SPDX-License-Identifier: Apache-2.0 */
/* suite: links video_ffmpeg */
/* Videos that the test makes itself (MPEG-4, in three kinds of files): which frames come at a rate and in a clip,
 * turned and cut short. Without FFmpeg they are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "media/media.h"
#include "base/str.h"
#include "scratch.h"

static const struct media_limits usual = {.max_pixels = 1 << 24, .max_samples = 1 << 24, .max_frames = 1 << 12};

#if __has_include(<libavformat/avformat.h>)
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>

enum { FRAMES = 25, RATE = 10, WIDTH = 64, HEIGHT = 48 };

/* Frame i is gray of 10 i + 2, with a brighter left upper corner. */
static void fill(AVFrame *f, int i)
{
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            f->data[0][y * f->linesize[0] + x] = (uint8_t)(x < 16 && y < 16 ? 255 : 16 + 8 * i);
    for (int p = 1; p < 3; p++)
        for (int y = 0; y < HEIGHT / 2; y++) memset(f->data[p] + y * f->linesize[p], 128, WIDTH / 2);
    f->pts = i;
}

static void drain(AVCodecContext *c, AVFormatContext *file, AVStream *s, AVPacket *packet)
{
    while (avcodec_receive_packet(c, packet) >= 0) {
        packet->duration = 1; /* of the last, too: the file then says how long it is */
        av_packet_rescale_ts(packet, c->time_base, s->time_base);
        packet->stream_index = 0;
        assert_true(av_interleaved_write_frame(file, packet) >= 0);
    }
}

static void encode(const char *path, int degrees)
{
    AVFormatContext *file;
    assert_true(avformat_alloc_output_context2(&file, NULL, NULL, path) >= 0);
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
    AVCodecContext *c = avcodec_alloc_context3(codec);
    AVStream *s = avformat_new_stream(file, NULL);
    AVPacket *packet = av_packet_alloc();
    AVFrame *f = av_frame_alloc();
    c->width = f->width = WIDTH;
    c->height = f->height = HEIGHT;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    f->format = AV_PIX_FMT_YUV420P;
    c->time_base = (AVRational){1, RATE};
    s->time_base = c->time_base;
    c->framerate = s->avg_frame_rate = (AVRational){RATE, 1};
    c->bit_rate = 4000000;
    c->max_b_frames = 1;
    c->thread_count = 1;
    if (file->oformat->flags & AVFMT_GLOBALHEADER) c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    assert_true(avcodec_open2(c, codec, NULL) >= 0);
    assert_true(avcodec_parameters_from_context(s->codecpar, c) >= 0);
    if (degrees) {
        int32_t *m = (int32_t *)av_stream_new_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof *m);
        av_display_rotation_set(m, degrees);
    }
    assert_true(avio_open(&file->pb, path, AVIO_FLAG_WRITE) >= 0);
    assert_true(avformat_write_header(file, NULL) >= 0);
    assert_true(av_frame_get_buffer(f, 0) >= 0);
    for (int i = 0; i < FRAMES; i++) {
        assert_true(av_frame_make_writable(f) >= 0);
        fill(f, i);
        assert_true(avcodec_send_frame(c, f) >= 0);
        drain(c, file, s, packet);
    }
    avcodec_send_frame(c, NULL);
    drain(c, file, s, packet);
    assert_true(av_write_trailer(file) >= 0);
    avio_closep(&file->pb);
    av_frame_free(&f);
    av_packet_free(&packet);
    avcodec_free_context(&c);
    avformat_free_context(file);
}

/* Which of the frames it is, by its gray: 16 .. 235 become 0 .. 255. */
static int number_of(const struct image *m)
{
    double gray = m->p[3 * (m->width * (m->height - 10) + m->width - 10)];
    return (int)lrint((gray / 255 * 219 + 0) / 8);
}

static void wanted(const struct str *s, struct video_wish w, const int *numbers, int n)
{
    struct video v;
    struct err e = {0};
    if (media_video(&v, s->p, s->n, &w, &usual, &e)) fail_msg("%s", e.text);
    assert_int_equal(v.width, WIDTH);
    if (v.n != n) fail_msg("%lld frames from %g to %g at %g, wanted %d", (long long)v.n, w.from_s, w.to_s, w.rate, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(v.frame[i].height, HEIGHT);
        if (number_of(&v.frame[i]) != numbers[i])
            fail_msg("frame %d of a clip is %d, wanted %d", i, number_of(&v.frame[i]), numbers[i]);
        if (fabs(v.time_s[i] - numbers[i] / 10.0) > 0.002)
            fail_msg("frame %d of %lld begins at %g s; %g s, %g a second", numbers[i], (long long)v.n, v.time_s[i],
                     v.duration_s, v.rate);
    }
    assert_true(fabs(v.rate - RATE) < 0.5 && fabs(v.duration_s - 2.5) < 0.15);
    video_free(&v);
}

static void read_file(struct str *s, const char *path)
{
    char *p;
    size_t n;
    struct err e = {0};
    assert_int_equal(fs_read_all(path, 1 << 24, &p, &n, &e), OK);
    str_clear(s);
    str_add(s, p, n);
    xfree(p);
}

static void test_clips(void **state)
{
    (void)state;
    static const char *const names[] = {"v.mp4", "v.mkv", "v.avi"};
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};
    char *dir = scratch_new();
    struct str s = {0};
    av_log_set_level(AV_LOG_QUIET);
    for (int i = 0; i < 3; i++) {
        char *path = fs_join(dir, names[i]);
        encode(path, 0);
        read_file(&s, path);
        xfree(path);
        wanted(&s, (struct video_wish){0}, all, FRAMES);
        wanted(&s, (struct video_wish){.from_s = 0.45, .to_s = 0.85}, all + 5, 4);
        wanted(&s, (struct video_wish){.from_s = 0.45, .most = 3}, all + 5, 3);
        wanted(&s, (struct video_wish){.rate = 2}, (int[]){0, 5, 10, 15, 20}, 5);
        wanted(&s, (struct video_wish){.rate = 20, .from_s = 1.01, .to_s = 1.3}, (int[]){10, 10, 11, 11, 12, 12}, 6);
        wanted(&s, (struct video_wish){.rate = 1, .from_s = 0.35}, (int[]){3, 13, 23}, 3);
        struct video v;
        struct err e = {0};
        assert_int_equal(media_video(&v, s.p, s.n, &(struct video_wish){.from_s = 99}, &usual, &e), ERR_REQUEST);
        struct media_limits small = usual;
        small.max_frames = 7;
        assert_int_equal(media_video(&v, s.p, s.n, &(struct video_wish){0}, &small, &e), ERR_CORRUPT);
        small = usual;
        small.max_pixels = WIDTH * HEIGHT - 1;
        assert_int_equal(media_video(&v, s.p, s.n, &(struct video_wish){0}, &small, &e), ERR_CORRUPT);
        small.max_pixels = WIDTH * HEIGHT * 2; /* and 25 of them */
        assert_int_equal(media_video(&v, s.p, s.n, &(struct video_wish){0}, &small, &e), ERR_CORRUPT);
        for (size_t cut = 0; cut < s.n; cut += s.n / 10 + 1) {
            if (!media_video(&v, s.p, cut, &(struct video_wish){.most = 4}, &usual, &e)) assert_true(v.n <= FRAMES);
            video_free(&v);
        }
    }
    str_free(&s);
    scratch_free(dir);
}

static void test_turned(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "t.mp4");
    struct str s = {0};
    for (int quarter = 1; quarter <= 3; quarter++) {
        struct video v;
        struct err e = {0};
        encode(path, 90 * quarter); /* clockwise */
        read_file(&s, path);
        assert_int_equal(media_video(&v, s.p, s.n, &(struct video_wish){.most = 1}, &usual, &e), OK);
        bool swap = quarter != 2;
        assert_int_equal(v.width, swap ? HEIGHT : WIDTH);
        assert_int_equal(v.frame[0].width, v.width);
        int64_t x = quarter == 3 ? 4 : v.width - 5, y = quarter == 1 ? 4 : v.height - 5; /* where the corner went */
        assert_true(v.frame[0].p[3 * (y * v.width + x)] > 200);
        video_free(&v);
    }
    str_free(&s);
    xfree(path);
    scratch_free(dir);
}
#else
static void test_clips(void **state)
{
    (void)state;
    struct video v;
    struct err e = {0};
    assert_int_equal(media_video(&v,
                                 "\0\0\0\x18"
                                 "ftypmp42",
                                 12, &(struct video_wish){0}, &usual, &e),
                     ERR_REQUEST);
    assert_non_null(strstr(e.text, "FFmpeg"));
}
static void test_turned(void **state) { (void)state; }
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clips), cmocka_unit_test(test_turned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
