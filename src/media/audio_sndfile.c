/* SPDX-License-Identifier: Apache-2.0 */
/* audio_sndfile.c: sound by libsndfile: WAV, FLAC, Ogg (Vorbis, Opus), AIFF, MP3, out of memory. */
#include <string.h>

#include <sndfile.h>

#include "base/mem.h"
#include "media/media.h"

bool audio_sndfile_there(void) { return true; }

struct bytes {
    const char *p;
    sf_count_t n, at;
};

static sf_count_t length(void *of) { return ((struct bytes *)of)->n; }

static sf_count_t seek(sf_count_t to, int whence, void *of)
{
    struct bytes *b = of;
    if (whence == SEEK_CUR) to += b->at;
    if (whence == SEEK_END) to += b->n;
    if (to < 0 || to > b->n) return -1;
    return b->at = to;
}

static sf_count_t give(void *to, sf_count_t n, void *of)
{
    struct bytes *b = of;
    if (n > b->n - b->at) n = b->n - b->at;
    if (n <= 0) return 0;
    memcpy(to, b->p + b->at, (size_t)n);
    b->at += n;
    return n;
}

static sf_count_t tell(void *of) { return ((struct bytes *)of)->at; }

static sf_count_t refuse(const void *p, sf_count_t n, void *of)
{
    (void)p, (void)n, (void)of;
    return 0;
}

/* Headers lie about how long a sound is, so that memory grows with what comes. */
static int read_frames(struct audio *out, SNDFILE *f, const SF_INFO *about, const struct media_limits *l, struct err *e)
{
    enum { PIECE = 65536 };
    size_t room = 0, n = 0;
    sf_count_t got;
    do {
        if ((int64_t)n > l->max_samples - (int64_t)PIECE * about->channels)
            return err_set(e, ERR_CORRUPT, "a sound of more than %lld values", (long long)l->max_samples);
        GROW(out->p, n, room, (size_t)PIECE * (size_t)about->channels);
        got = sf_readf_float(f, out->p + n, PIECE);
        n += (size_t)(got > 0 ? got : 0) * (size_t)about->channels;
    } while (got == PIECE);
    out->frames = (int64_t)n / about->channels;
    if (sf_error(f)) return err_set(e, ERR_CORRUPT, "damaged: %s", sf_strerror(f));
    if (out->frames < about->frames && about->frames != SF_COUNT_MAX)
        return err_set(e, ERR_CORRUPT, "holds %lld frames of the %lld that its header says: it was cut short",
                       (long long)out->frames, (long long)about->frames);
    if (!out->frames) return err_set(e, ERR_CORRUPT, "holds no sound");
    return OK;
}

int audio_sndfile(struct audio *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    SF_VIRTUAL_IO io = {length, seek, give, refuse, tell};
    struct bytes b = {p, (sf_count_t)n, 0};
    SF_INFO about = {0};
    SNDFILE *f = sf_open_virtual(&io, SFM_READ, &about, &b);
    if (!f) return err_set(e, ERR_CORRUPT, "damaged header: %s", sf_strerror(NULL));
    int code = OK;
    *out = (struct audio){.channels = about.channels, .rate = about.samplerate};
    if (about.channels < 1 || about.channels > 256 || about.samplerate < 1)
        code = err_set(e, ERR_CORRUPT, "%d channels at %d frames a second", about.channels, about.samplerate);
    if (!code) code = read_frames(out, f, &about, l, e);
    sf_close(f);
    return code;
}
