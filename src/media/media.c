/* SPDX-License-Identifier: Apache-2.0 */
/* media.c: the table, and what follows from a row. */
#include "media/media.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct media_limits media_limits_usual(void)
{
    return (
        struct media_limits){.max_pixels = (int64_t)1 << 27, .max_samples = (int64_t)1 << 29, .max_frames = 1 << 20};
}

static bool at(const unsigned char *p, size_t n, size_t from, const char *text, size_t text_n)
{
    return n >= from + text_n && !memcmp(p + from, text, text_n);
}
#define AT(from, text) at(p, n, from, text, sizeof text - 1)

static bool is_jpeg(const unsigned char *p, size_t n) { return AT(0, "\xff\xd8\xff"); }
static bool is_png(const unsigned char *p, size_t n) { return AT(0, "\x89PNG\r\n\x1a\n"); }
static bool is_webp(const unsigned char *p, size_t n) { return AT(0, "RIFF") && AT(8, "WEBP"); }
static bool is_wav(const unsigned char *p, size_t n) { return (AT(0, "RIFF") || AT(0, "RF64")) && AT(8, "WAVE"); }
static bool is_flac(const unsigned char *p, size_t n) { return AT(0, "fLaC"); }
static bool is_ogg(const unsigned char *p, size_t n) { return AT(0, "OggS"); }
static bool is_aiff(const unsigned char *p, size_t n) { return AT(0, "FORM") && (AT(8, "AIFF") || AT(8, "AIFC")); }
/* An ID3 tag, or the sync bits of a frame of layer III. */
static bool is_mp3(const unsigned char *p, size_t n)
{
    return AT(0, "ID3") || (n >= 2 && p[0] == 0xff && (p[1] & 0xe6) == 0xe2);
}
static bool is_mp4(const unsigned char *p, size_t n) { return AT(4, "ftyp") || AT(4, "moov") || AT(4, "mdat"); }
static bool is_matroska(const unsigned char *p, size_t n) { return AT(0, "\x1a\x45\xdf\xa3"); }
static bool is_avi(const unsigned char *p, size_t n) { return AT(0, "RIFF") && AT(8, "AVI "); }
static bool is_gif(const unsigned char *p, size_t n) { return AT(0, "GIF87a") || AT(0, "GIF89a"); }
static bool is_bmp(const unsigned char *p, size_t n) { return AT(0, "BM") && n >= 26; }
static bool is_tiff(const unsigned char *p, size_t n) { return AT(0, "II*\0") || AT(0, "MM\0*"); }
static bool is_pnm(const unsigned char *p, size_t n)
{
    return n >= 3 && p[0] == 'P' && p[1] >= '1' && p[1] <= '6' && isspace(p[2]);
}

#define SOUND(name, extensions, begins)                                                                                \
    {                                                                                                                  \
        name, MEDIA_AUDIO, extensions, begins, audio_sndfile_there, "libsndfile", .audio = audio_sndfile               \
    }
#define VIDEO(name, extensions, begins)                                                                                \
    {                                                                                                                  \
        name, MEDIA_VIDEO, extensions, begins, video_ffmpeg_there, "FFmpeg", .video = video_ffmpeg                     \
    }
#define UNREAD(name, extensions, begins)                                                                               \
    {                                                                                                                  \
        name, MEDIA_IMAGE, extensions, begins, NULL, NULL, .image = NULL                                               \
    }
const struct media_row media_rows[] = {
    {"JPEG", MEDIA_IMAGE, "jpg jpeg jpe", is_jpeg, NULL, "libjpeg", .image = image_jpeg},
    {"PNG", MEDIA_IMAGE, "png", is_png, NULL, "libpng", .image = image_png},
    {"WebP", MEDIA_IMAGE, "webp", is_webp, image_webp_there, "libwebp", .image = image_webp},
    SOUND("WAV", "wav", is_wav),
    SOUND("FLAC", "flac", is_flac),
    SOUND("Ogg", "ogg oga opus", is_ogg),
    SOUND("AIFF", "aif aiff aifc", is_aiff),
    SOUND("MP3", "mp3", is_mp3),
    VIDEO("MP4", "mp4 m4v mov", is_mp4),
    VIDEO("Matroska", "mkv webm", is_matroska),
    VIDEO("AVI", "avi", is_avi),
    /* Known by name, so that they can be refused by it. */
    UNREAD("GIF", "gif", is_gif),
    UNREAD("BMP", "bmp", is_bmp),
    UNREAD("TIFF", "tif tiff", is_tiff),
    UNREAD("PNM", "ppm pgm pbm pnm", is_pnm),
    {"MP4 sound", MEDIA_AUDIO, "m4a aac", NULL, NULL, NULL, .image = NULL},
    {0},
};

const struct media_row *media_of(const void *p, size_t n)
{
    for (const struct media_row *r = media_rows; r->name; r++)
        if (r->begins && r->begins(p, n)) return r;
    return NULL;
}

static bool has_word(const char *words, const char *word, size_t n)
{
    for (const char *p = words; *p; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        if (k == n && !strncasecmp(p, word, n)) return true;
        p += k;
    }
    return false;
}

const struct media_row *media_of_name(const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.'), *last = dot ? dot + 1 : name;
    for (const struct media_row *r = media_rows; r->name; r++)
        if (has_word(r->extensions, last, strlen(last))) return r;
    return NULL;
}

const char *media_kind_name(enum media_kind k)
{
    static const char *const names[MEDIA_KINDS] = {"an image", "a sound", "a video"};
    return names[k];
}

void media_missing(char out[128])
{
    const char *last = NULL;
    size_t n = 0;
    out[0] = 0;
    for (const struct media_row *r = media_rows; r->name; r++) {
        if (!r->there || r->there() || (last && !strcmp(last, r->library))) continue;
        n += (size_t)snprintf(out + n, 128 - n, "%sno %s", n ? ", " : "", r->library);
        last = r->library;
    }
}

/* The row, when it can do what is wanted. */
static int row_for(const struct media_row **out, const void *p, size_t n, enum media_kind wanted, struct err *e)
{
    const struct media_row *r = *out = media_of(p, n);
    static const char *const known[MEDIA_KINDS] = {"JPEG, PNG or WebP", "WAV, FLAC, Ogg, AIFF or MP3",
                                                   "MP4, Matroska, WebM or AVI"};
    if (!r)
        return err_set(e, ERR_CORRUPT, "begins like %s that is known (wanted %s)",
                       wanted == MEDIA_IMAGE   ? "no image"
                       : wanted == MEDIA_AUDIO ? "no sound"
                                               : "no video",
                       known[wanted]);
    if (r->kind != wanted)
        return err_set(e, ERR_REQUEST, "is %s (%s), where %s was wanted", media_kind_name(r->kind), r->name,
                       media_kind_name(wanted));
    if (!r->image && !r->audio && !r->video)
        return err_set(e, ERR_REQUEST, "is %s, which nothing here reads; convert it to %s", r->name, known[wanted]);
    if (r->there && !r->there())
        return err_set(e, ERR_REQUEST,
                       "is %s, and this tutti was built without %s; install it (scripts/deps.sh) and "
                       "build again",
                       r->name, r->library);
    return OK;
}

int media_image(struct image *out, const void *p, size_t n, int channels, const struct media_limits *l, struct err *e)
{
    const struct media_row *r;
    *out = (struct image){0};
    int code = row_for(&r, p, n, MEDIA_IMAGE, e);
    if (!code && (code = r->image(out, p, n, l, e))) err_prefix(e, "%s", r->name);
    if (code) image_free(out);
    else if (channels) image_to_channels(out, channels);
    return code;
}

int media_audio(struct audio *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    const struct media_row *r;
    *out = (struct audio){0};
    int code = row_for(&r, p, n, MEDIA_AUDIO, e);
    if (!code && (code = r->audio(out, p, n, l, e))) err_prefix(e, "%s", r->name);
    if (code) audio_free(out);
    return code;
}

int media_video(struct video *out, const void *p, size_t n, const struct video_wish *wish, const struct media_limits *l,
                struct err *e)
{
    const struct media_row *r;
    *out = (struct video){0};
    int code = row_for(&r, p, n, MEDIA_VIDEO, e);
    if (!code && (code = r->video(out, p, n, wish, l, e))) err_prefix(e, "%s", r->name);
    if (code) video_free(out);
    return code;
}

void audio_free(struct audio *a)
{
    xfree(a->p);
    *a = (struct audio){0};
}

void video_free(struct video *v)
{
    for (int64_t i = 0; i < v->n; i++) image_free(&v->frame[i]);
    xfree(v->frame);
    xfree(v->time_s);
    *v = (struct video){0};
}
