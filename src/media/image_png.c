/* SPDX-License-Identifier: Apache-2.0 */
/* image_png.c: PNG by libpng. Checksums are compared; what it warns of in chunks that are not the picture is passed
 * over. */
#include <png.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "media/exif.h"
#include "media/media.h"

struct work {
    const unsigned char *p;
    size_t n, at;
    char said[160];
    struct image *image;
    png_bytep *rows;
};

static void ends(png_structp png, png_const_charp what)
{
    struct work *w = png_get_error_ptr(png);
    snprintf(w->said, sizeof w->said, "%s", what);
    png_longjmp(png, 1);
}

static void warns(png_structp png, png_const_charp what)
{
    (void)png;
    (void)what;
}

static void give(png_structp png, png_bytep to, size_t n)
{
    struct work *w = png_get_io_ptr(png);
    if (n > w->n - w->at) png_error(png, "it ends in the middle: it was cut short");
    memcpy(to, w->p + w->at, n);
    w->at += n;
}

/* Everything becomes 8 bits of gray or of three colours. */
static void wish_colours(png_structp png, png_infop info)
{
    png_byte depth = png_get_bit_depth(png, info), type = png_get_color_type(png, info);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (depth == 16) png_set_strip_16(png);
    if (type & PNG_COLOR_MASK_ALPHA || (type == PNG_COLOR_TYPE_PALETTE && png_get_valid(png, info, PNG_INFO_tRNS)))
        png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

/* Longjmp comes back in image_png: nothing here is held but by w. */
static int read_pixels(struct work *w, png_structp png, png_infop info, const struct media_limits *l, int *orientation,
                       struct err *e)
{
    png_read_info(png, info);
    bool gray = !(png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR);
    int code = image_new(w->image, png_get_image_width(png, info), png_get_image_height(png, info), gray ? 1 : 3,
                         l->max_pixels, e);
    if (code) return code;
    wish_colours(png, info);
    size_t bytes = (size_t)w->image->width * (size_t)w->image->channels;
    if (png_get_rowbytes(png, info) != bytes)
        return err_set(e, ERR_CORRUPT, "rows of %zu bytes, wanted %zu", png_get_rowbytes(png, info), bytes);
    w->rows = xmalloc((size_t)w->image->height * sizeof *w->rows);
    for (int64_t y = 0; y < w->image->height; y++) w->rows[y] = w->image->p + bytes * (size_t)y;
    png_read_image(png, w->rows);
    png_read_end(png, info);
    png_bytep exif;
    png_uint_32 exif_n;
    if (png_get_eXIf_1(png, info, &exif_n, &exif)) *orientation = exif_orientation(exif, exif_n);
    return OK;
}

int image_png(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    struct work *w = xcalloc(1, sizeof *w);
    int code, *orientation = xcalloc(1, sizeof *orientation); /* both outlive a longjmp */
    *w = (struct work){.p = p, .n = n, .image = out};
    *orientation = 1;
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, w, ends, warns);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    CHECK(info, "libpng cannot be set up");
    if (setjmp(png_jmpbuf(png))) {
        code = err_set(e, ERR_CORRUPT, "damaged near byte %zu: %s", w->at, w->said);
    } else {
        png_set_read_fn(png, w, give);
        png_set_user_limits(png, IMAGE_SIDE_MAX, IMAGE_SIDE_MAX);
        png_set_chunk_malloc_max(png, 1 << 20); /* of texts and profiles packed in it */
        png_set_chunk_cache_max(png, 64);
        code = read_pixels(w, png, info, l, orientation, e);
    }
    png_destroy_read_struct(&png, &info, NULL);
    if (code) image_free(out);
    else image_orient(out, *orientation);
    xfree(w->rows);
    xfree(w);
    xfree(orientation);
    return code;
}

static void put(png_structp png, png_bytep p, size_t n) { str_add(png_get_io_ptr(png), p, n); }

static void flush(png_structp png) { (void)png; }

void image_png_write(struct str *out, const struct image *m)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, warns);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    CHECK(info, "libpng cannot be set up");
    png_set_write_fn(png, out, put, flush);
    png_set_IHDR(png, info, (png_uint_32)m->width, (png_uint_32)m->height, 8,
                 m->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t y = 0; y < m->height; y++) png_write_row(png, m->p + y * m->width * m->channels);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
}
