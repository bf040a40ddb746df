/* SPDX-License-Identifier: Apache-2.0 */
/* video_ffmpeg.c: moving pictures by FFmpeg's libraries, out of memory: no name is ever opened, so that a file which
 * names others (a playlist) reaches nothing.
 *
 * Frames come in the order in which they show. One of a wished rate is the frame that shows at that moment: the last
 * that begins no later. Sampling begins at the file's first frame, decoding at its beginning: cost is that of all
 * frames before to_s. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

#include "base/mem.h"
#include "media/media.h"

enum { IO_BUFFER = 65536 };
static const double TICK_S = 0.001; /* Matroska rounds times to it: what begins so little later begins in time */

/* FFmpeg brings a hundred other libraries. They are loaded when the first video is read, so that a start without one
 * costs nothing of them, and stay loaded. */
#define FUNCTIONS(X)                                                                                                   \
    X(util, av_strerror)                                                                                               \
    X(util, av_display_rotation_get)                                                                                   \
    X(util, av_log_set_level)                                                                                          \
    X(util, av_malloc)                                                                                                 \
    X(util, av_opt_set)                                                                                                \
    X(util, av_frame_alloc)                                                                                            \
    X(util, av_frame_free)                                                                                             \
    X(util, av_frame_move_ref)                                                                                         \
    X(util, av_frame_unref)                                                                                            \
    X(util, av_freep)                                                                                                  \
    X(codec, avcodec_alloc_context3)                                                                                   \
    X(codec, avcodec_parameters_to_context)                                                                            \
    X(codec, avcodec_open2)                                                                                            \
    X(codec, avcodec_receive_frame)                                                                                    \
    X(codec, avcodec_send_packet)                                                                                      \
    X(codec, avcodec_free_context)                                                                                     \
    X(codec, av_packet_alloc)                                                                                          \
    X(codec, av_packet_free)                                                                                           \
    X(codec, av_packet_unref)                                                                                          \
    X(format, av_find_best_stream)                                                                                     \
    X(format, av_stream_get_side_data)                                                                                 \
    X(format, avformat_alloc_context)                                                                                  \
    X(format, avformat_open_input)                                                                                     \
    X(format, avformat_find_stream_info)                                                                               \
    X(format, avformat_close_input)                                                                                    \
    X(format, av_read_frame)                                                                                           \
    X(format, avio_alloc_context)                                                                                      \
    X(format, avio_context_free)                                                                                       \
    X(scale, sws_getCachedContext)                                                                                     \
    X(scale, sws_scale)                                                                                                \
    X(scale, sws_freeContext)
struct ffmpeg {
    void *util, *codec, *format, *scale;
#define POINTER(library, name) typeof(name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
};

#define TEXT(x) #x
#define SO(name, version) "lib" name ".so." TEXT(version)
static void *load(const char *name, const char **missing)
{
    void *library = *missing ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library && !*missing) *missing = name;
    return library;
}

/* The versions that the headers are of. */
static int ffmpeg_load(struct ffmpeg *f, struct err *e)
{
    const char *missing = NULL;
    *f = (struct ffmpeg){0};
    f->util = load(SO("avutil", LIBAVUTIL_VERSION_MAJOR), &missing);
    f->codec = load(SO("avcodec", LIBAVCODEC_VERSION_MAJOR), &missing);
    f->format = load(SO("avformat", LIBAVFORMAT_VERSION_MAJOR), &missing);
    f->scale = load(SO("swscale", LIBSWSCALE_VERSION_MAJOR), &missing);
#define FIND(library, name_)                                                                                           \
    if (!missing) {                                                                                                    \
        *(void **)&f->name_ = dlsym(f->library, #name_);                                                               \
        if (!f->name_) missing = #name_;                                                                               \
    }
    FUNCTIONS(FIND)
#undef FIND
    if (!missing) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s of FFmpeg is not on this machine; install its libraries (avformat, avcodec, avutil, swscale)",
                   missing);
}

static void ffmpeg_leave(struct ffmpeg *f)
{
    void *const all[] = {f->util, f->codec, f->format, f->scale};
    for (int i = 0; i < 4; i++)
        if (all[i]) dlclose(all[i]);
}

bool video_ffmpeg_there(void)
{
    struct ffmpeg f;
    struct err e;
    bool there = ffmpeg_load(&f, &e) == OK;
    ffmpeg_leave(&f);
    return there;
}

struct bytes {
    const unsigned char *p;
    int64_t n, at;
};

struct work {
    struct ffmpeg ff;
    struct bytes bytes;
    AVIOContext *io;
    AVFormatContext *file;
    AVCodecContext *codec;
    struct SwsContext *scale;
    AVPacket *packet;
    AVFrame *frame, *shown; /* decoded last; the one before, which shows until it */
    AVStream *stream;
    int turn; /* enum of exif's orientation: 1, 3, 6, 8 */
    double first_s, shown_s;
    bool any;       /* a frame came */
    int64_t wished; /* moments of the wish that are done */
    int64_t decoded;
    struct video *out;
    const struct video_wish *wish;
    const struct media_limits *limits;
};

static int give(void *of, uint8_t *to, int n)
{
    struct bytes *b = of;
    int64_t left = b->n - b->at;
    if (left <= 0) return AVERROR_EOF;
    if (n > left) n = (int)left;
    memcpy(to, b->p + b->at, (size_t)n);
    b->at += n;
    return n;
}

static int64_t seek(void *of, int64_t to, int whence)
{
    struct bytes *b = of;
    if (whence & AVSEEK_SIZE) return b->n;
    whence &= ~AVSEEK_FORCE;
    if (whence == SEEK_CUR) to += b->at;
    if (whence == SEEK_END) to += b->n;
    if (to < 0 || to > b->n) return AVERROR(EINVAL);
    return b->at = to;
}

/* Of a file in memory nothing else is to be opened. */
static int refuse_open(AVFormatContext *f, AVIOContext **io, const char *url, int flags, AVDictionary **options)
{
    (void)f, (void)url, (void)flags, (void)options;
    *io = NULL;
    return AVERROR(EPERM);
}

static int failed(struct work *w, int code, const char *what, struct err *e)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    w->ff.av_strerror(code, text, sizeof text);
    return err_set(e, code == AVERROR(ENOMEM) ? ERR_MEMORY : ERR_CORRUPT, "%s: %s", what, text);
}

/* The matrix that a camera writes, as one of the turns that image_orient knows. */
static int turn_of(struct work *w, const AVStream *s)
{
    const uint8_t *m = w->ff.av_stream_get_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, NULL);
    double degrees = m ? w->ff.av_display_rotation_get((const int32_t *)m) : 0;
    if (isnan(degrees)) return 1;
    switch ((int)(lrint(degrees / 90) & 3)) {
    case 1: return 8;
    case 2: return 3;
    case 3: return 6;
    default: return 1;
    }
}

enum { PADDING = 256 }; /* of a side of a picture in a decoder's memory: more than any codec's */

/* FFmpeg counts the pixels of its own buffers, with their borders, and calls those that are too many a lack of memory;
 * a picture's own are counted here, and again when it is taken (image_new). */
static int limit_pixels(struct work *w, struct err *e)
{
    const int64_t width = w->stream->codecpar->width, height = w->stream->codecpar->height;
    const int64_t most = w->limits->max_pixels, padded = (width + PADDING) * (height + PADDING);
    if (width > 0 && height > most / width)
        return err_set(e, ERR_CORRUPT, "pictures of %lld x %lld; at most %lld pixels are taken", (long long)width,
                       (long long)height, (long long)most);
    w->codec->max_pixels = padded > most ? padded : most;
    return OK;
}

static int open_codec(struct work *w, struct err *e)
{
    const AVCodec *codec;
    int i = w->ff.av_find_best_stream(w->file, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (i == AVERROR_STREAM_NOT_FOUND) return err_set(e, ERR_REQUEST, "has no moving pictures in it");
    if (i < 0 || !codec) return err_set(e, ERR_REQUEST, "its codec is none that this FFmpeg decodes");
    w->stream = w->file->streams[i];
    for (unsigned k = 0; k < w->file->nb_streams; k++)
        if ((int)k != i) w->file->streams[k]->discard = AVDISCARD_ALL;
    w->turn = turn_of(w, w->stream);
    w->codec = w->ff.avcodec_alloc_context3(codec);
    CHECK(w->codec, "FFmpeg has no memory");
    int code = w->ff.avcodec_parameters_to_context(w->codec, w->stream->codecpar);
    w->codec->thread_count = 1;
    if (limit_pixels(w, e)) return ERR_CORRUPT;
    w->codec->err_recognition = AV_EF_CRCCHECK;
    if (code >= 0) code = w->ff.avcodec_open2(w->codec, codec, NULL);
    return code < 0 ? failed(w, code, "its decoder cannot be opened", e) : OK;
}

static int open_file(struct work *w, struct err *e)
{
    w->ff.av_log_set_level(AV_LOG_QUIET); /* else it writes on stderr by itself; what fails is said by its code */
    w->file = w->ff.avformat_alloc_context();
    unsigned char *buffer = w->ff.av_malloc(IO_BUFFER);
    w->io = buffer ? w->ff.avio_alloc_context(buffer, IO_BUFFER, 0, &w->bytes, give, NULL, seek) : NULL;
    CHECK(w->file && w->io, "FFmpeg has no memory");
    w->file->pb = w->io;
    w->file->io_open = refuse_open;
    w->file->max_streams = 64;
    int code = w->ff.av_opt_set(w->file, "format_whitelist", "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi", 0);
    if (code >= 0) code = w->ff.avformat_open_input(&w->file, NULL, NULL, NULL); /* frees w->file where it fails */
    if (code < 0) return failed(w, code, "damaged header", e);
    code = w->ff.avformat_find_stream_info(w->file, NULL);
    if (code < 0) return failed(w, code, "damaged", e);
    return open_codec(w, e);
}

static int add_frame(struct work *w, const AVFrame *f, double time_s, struct err *e)
{
    struct video *v = w->out;
    if (v->n >= w->limits->max_frames)
        return err_set(e, ERR_CORRUPT,
                       "more than %lld frames are wanted of it; ask for a shorter piece or a lower rate",
                       (long long)w->limits->max_frames);
    struct image m;
    int code = image_new(&m, f->width, f->height, 3, w->limits->max_pixels, e);
    if (code) return code;
    if ((v->n + 1) * m.width * m.height > w->limits->max_pixels * 8) {
        image_free(&m);
        return err_set(e, ERR_CORRUPT, "frames of more than 8 times %lld pixels together; ask for fewer",
                       (long long)w->limits->max_pixels);
    }
    w->scale =
        w->ff.sws_getCachedContext(w->scale, f->width, f->height, f->format, f->width, f->height, AV_PIX_FMT_RGB24,
                                   SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, NULL, NULL, NULL);
    if (!w->scale) {
        image_free(&m);
        return err_set(e, ERR_REQUEST, "its pixels are of a form that FFmpeg does not turn into colours");
    }
    uint8_t *rows[4] = {m.p};
    int stride[4] = {3 * f->width};
    w->ff.sws_scale(w->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, rows, stride);
    image_orient(&m, w->turn);
    GROW(v->frame, v->n, v->room, 1);
    v->time_s = xrealloc(v->time_s, (size_t)v->room * sizeof *v->time_s);
    v->frame[v->n] = m;
    v->time_s[v->n++] = time_s;
    return OK;
}

static bool enough(const struct work *w) { return (w->wish->most && w->out->n >= w->wish->most); }

static double moment(const struct work *w) { return w->wish->from_s + (double)w->wished / w->wish->rate; }

/* What showed until `until_s` (infinite: to the end) fills the moments of the wish before that. */
static int show(struct work *w, double until_s, struct err *e)
{
    int code = OK;
    double to = w->wish->to_s > 0 ? w->wish->to_s : INFINITY;
    if (w->wish->rate <= 0) {
        if (w->shown_s + TICK_S >= w->wish->from_s && w->shown_s + TICK_S < to && !enough(w))
            code = add_frame(w, w->shown, w->shown_s, e);
        return code;
    }
    while (!code && !enough(w) && moment(w) + TICK_S < until_s && moment(w) < to) {
        code = add_frame(w, w->shown, w->shown_s, e);
        w->wished++;
    }
    return code;
}

/* When a frame begins, in seconds from the first. One without a time of its own, or with one that does not rise (AVI
 * has none), follows the one before at the file's rate. */
static double begins(struct work *w)
{
    double rate = av_q2d(w->stream->avg_frame_rate), s = NAN;
    if (w->frame->best_effort_timestamp != AV_NOPTS_VALUE)
        s = (double)w->frame->best_effort_timestamp * av_q2d(w->stream->time_base);
    if (!w->any) w->first_s = isfinite(s) ? s : 0;
    s -= w->first_s;
    if (!w->any) return 0;
    return s > w->shown_s ? s : w->shown_s + (rate > 0 && isfinite(rate) ? 1 / rate : 0.04);
}

static int take_frame(struct work *w, struct err *e)
{
    if (++w->decoded > w->limits->max_frames)
        return err_set(e, ERR_CORRUPT, "more than %lld frames", (long long)w->limits->max_frames);
    double s = begins(w);
    int code = w->any ? show(w, s, e) : OK;
    w->ff.av_frame_unref(w->shown);
    w->ff.av_frame_move_ref(w->shown, w->frame);
    w->any = true;
    w->shown_s = s;
    return code;
}

static bool done(const struct work *w)
{
    return enough(w) || (w->wish->to_s > 0 && w->any && w->shown_s >= w->wish->to_s);
}

static int take_frames(struct work *w, struct err *e)
{
    int got = 0, code = OK;
    while (!code && !done(w) && (got = w->ff.avcodec_receive_frame(w->codec, w->frame)) >= 0) code = take_frame(w, e);
    if (!code && got < 0 && got != AVERROR(EAGAIN) && got != AVERROR_EOF) return failed(w, got, "a damaged frame", e);
    return code;
}

static int decode(struct work *w, struct err *e)
{
    int code = OK, got = 0;
    while (!code && !done(w) && (got = w->ff.av_read_frame(w->file, w->packet)) >= 0) {
        if (w->packet->stream_index == w->stream->index) {
            int sent = w->ff.avcodec_send_packet(w->codec, w->packet);
            if (sent < 0 && sent != AVERROR(EAGAIN)) code = failed(w, sent, "a damaged frame", e);
            else code = take_frames(w, e);
        }
        w->ff.av_packet_unref(w->packet);
    }
    if (code || done(w)) return code;
    if (got != AVERROR_EOF) return failed(w, got, "damaged", e);
    if (w->io->error < 0) return failed(w, w->io->error, "damaged", e);
    w->ff.avcodec_send_packet(w->codec, NULL);
    code = take_frames(w, e);
    if (!code && w->any && !done(w)) { /* the last one shows to the end */
        double lasts = w->shown_s + 2 * TICK_S;
        if (w->out->duration_s > lasts) lasts = w->out->duration_s;
        code = show(w, lasts, e);
    }
    return code;
}

int video_ffmpeg(struct video *out, const void *p, size_t n, const struct video_wish *wish,
                 const struct media_limits *l, struct err *e)
{
    struct work *w = xcalloc(1, sizeof *w);
    *w = (struct work){.bytes = {p, (int64_t)n, 0}, .out = out, .wish = wish, .limits = l, .turn = 1};
    int code = ffmpeg_load(&w->ff, e);
    if (code) {
        ffmpeg_leave(&w->ff);
        xfree(w);
        return code;
    }
    w->packet = w->ff.av_packet_alloc();
    w->frame = w->ff.av_frame_alloc();
    w->shown = w->ff.av_frame_alloc();
    CHECK(w->packet && w->frame && w->shown, "FFmpeg has no memory");
    code = open_file(w, e);
    if (!code) {
        bool swap = w->turn == 6 || w->turn == 8;
        out->width = swap ? w->codec->height : w->codec->width;
        out->height = swap ? w->codec->width : w->codec->height;
        out->rate = av_q2d(w->stream->avg_frame_rate);
        if (!isfinite(out->rate)) out->rate = 0;
        if (w->file->duration > 0) out->duration_s = (double)w->file->duration / AV_TIME_BASE;
        code = decode(w, e);
    }
    if (!code && !w->any) code = err_set(e, ERR_CORRUPT, "holds no frame");
    else if (!code && !out->n)
        code = err_set(e, ERR_REQUEST, "has no frame from %g s on; it lasts %g s", wish->from_s, out->duration_s);
    if (w->io) w->ff.av_freep(&w->io->buffer);
    w->ff.avformat_close_input(&w->file);
    w->ff.avio_context_free(&w->io);
    w->ff.avcodec_free_context(&w->codec);
    w->ff.sws_freeContext(w->scale);
    w->ff.av_packet_free(&w->packet);
    w->ff.av_frame_free(&w->frame);
    w->ff.av_frame_free(&w->shown);
    ffmpeg_leave(&w->ff);
    xfree(w);
    return code;
}
