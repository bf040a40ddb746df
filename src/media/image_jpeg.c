/* SPDX-License-Identifier: Apache-2.0 */
/* image_jpeg.c: JPEG by libjpeg(-turbo): the slow integer transform and smooth upsampling, its defaults, so that a
 * picture's bytes are those of PIL and torchvision. What it says of damage ends the picture: a file that was cut short
 * is an error here, no gray area. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/mem.h"
#include "media/exif.h"
#include "media/media.h"

enum { SCANS_MAX = 500 };

struct work {
    struct jpeg_error_mgr errors; /* the first: callbacks get its address */
    jmp_buf out;
    char said[JMSG_LENGTH_MAX];
    struct jpeg_decompress_struct d;
    struct jpeg_progress_mgr progress;
    struct image *image;
    JSAMPLE *row;  /* of four colours */
    bool complete; /* all rows are there */
};

static void ends(j_common_ptr d)
{
    struct work *w = (struct work *)d->err;
    d->err->format_message(d, w->said);
    longjmp(w->out, 1);
}

/* level -1: damage that the library would pass over. What costs no pixel is passed over here too: bytes between
 * markers, unusual version numbers, and whatever is wrong behind the last row. */
static void warns(j_common_ptr d, int level)
{
    static const int harmless[] = {JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR, JWRN_ADOBE_XFORM};
    const struct work *w = (const struct work *)d->err;
    if (level >= 0 || w->complete) return;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (d->err->msg_code == harmless[i]) return;
    ends(d);
}

/* Every scan of a progressive picture goes over all of it: a few bytes may ask for thousands. */
static void count_scans(j_common_ptr d)
{
    struct work *w = (struct work *)d->err;
    if (((j_decompress_ptr)d)->input_scan_number <= SCANS_MAX) return;
    snprintf(w->said, sizeof w->said, "more than %d scans", SCANS_MAX);
    longjmp(w->out, 1);
}

static int orientation_of(const struct work *w)
{
    for (const struct jpeg_marker_struct *m = w->d.marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && !memcmp(m->data, "Exif\0\0", 6))
            return exif_orientation(m->data, m->data_length);
    return 1;
}

/* Cyan, magenta, yellow and black: the share of light that each lets through, one after the other. */
static void from_cmyk(unsigned char *to, const JSAMPLE *from, int64_t n, bool inverted)
{
    for (int64_t i = 0; i < n; i++, from += 4)
        for (int c = 0; c < 3; c++) {
            int ink = inverted ? 255 - from[c] : from[c], light = inverted ? from[3] : 255 - from[3];
            int product = ink * light + 128, v = light - ((product + (product >> 8)) >> 8);
            *to++ = (unsigned char)(v < 0 ? 0 : v);
        }
}

static int read_pixels(struct work *w, const struct media_limits *l, struct err *e)
{
    struct jpeg_decompress_struct *d = &w->d;
    bool gray = d->jpeg_color_space == JCS_GRAYSCALE,
         four = d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK;
    if (d->num_components != (gray ? 1 : four ? 4 : 3))
        return err_set(e, ERR_REQUEST, "has %d components, of no kind that is known", d->num_components);
    d->out_color_space = gray ? JCS_GRAYSCALE : four ? JCS_CMYK : JCS_RGB;
    int code = image_new(w->image, d->image_width, d->image_height, gray ? 1 : 3, l->max_pixels, e);
    if (code) return code;
    if (four) w->row = xmalloc(4 * (size_t)d->image_width);
    jpeg_start_decompress(d);
    size_t bytes = (size_t)w->image->width * (size_t)w->image->channels;
    while (d->output_scanline < d->output_height) {
        unsigned char *to = w->image->p + bytes * d->output_scanline;
        JSAMPROW row = four ? w->row : to;
        jpeg_read_scanlines(d, &row, 1);
        if (four) from_cmyk(to, w->row, w->image->width, d->saw_Adobe_marker);
    }
    w->complete = true;
    jpeg_finish_decompress(d);
    return OK;
}

int image_jpeg(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    struct work *w = xcalloc(1, sizeof *w);
    int code, orientation = 1;
    w->image = out;
    w->d.err = jpeg_std_error(&w->errors);
    w->errors.error_exit = ends;
    w->errors.emit_message = warns;
    if (setjmp(w->out)) {
        code = err_set(e, ERR_CORRUPT, "damaged: %s", w->said);
    } else {
        jpeg_create_decompress(&w->d);
        w->progress.progress_monitor = count_scans;
        w->d.progress = &w->progress;
        /* Progressive pictures are kept as coefficients: 6 bytes a pixel at most. */
        w->d.mem->max_memory_to_use = (long)(l->max_pixels * 8 + (1 << 20));
        jpeg_save_markers(&w->d, JPEG_APP0 + 1, 0xffff);
        jpeg_mem_src(&w->d, p, (unsigned long)n);
        jpeg_read_header(&w->d, TRUE);
        orientation = orientation_of(w);
        code = read_pixels(w, l, e);
    }
    jpeg_destroy_decompress(&w->d);
    xfree(w->row);
    xfree(w);
    if (code) image_free(out);
    else image_orient(out, orientation);
    return code;
}
