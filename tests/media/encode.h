/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h: pictures as files in memory, by the encoders of the libraries that also decode them: what tests look at is
 * made by themselves. */
#ifndef TUTTI_TESTS_ENCODE_H
#define TUTTI_TESTS_ENCODE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

#include "base/mem.h"
#include "base/str.h"
#include "media/image.h"

/* As make_media.py has it. */
static inline struct image picture(int64_t width, int64_t height, int channels)
{
    struct image m = {.width = width, .height = height, .channels = channels};
    m.p = xmalloc(image_bytes(&m));
    for (int64_t y = 0, i = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) m.p[i++] = (unsigned char)(x * 7 + y * 13 + c * 101 + (x * y) % 31 * 5);
    return m;
}

/* One that JPEG keeps well: slow changes, of a class's colour. */
static inline struct image smooth_picture(int64_t width, int64_t height, int tint)
{
    struct image m = {.width = width, .height = height, .channels = 3};
    m.p = xmalloc(image_bytes(&m));
    for (int64_t y = 0, i = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                m.p[i++] = (unsigned char)((x * 80 / width + y * 80 / height + (tint >> c & 1) * 90) & 255);
    return m;
}

/* A block of tags that says nothing but which way up. */
static inline size_t exif_block(unsigned char out[32], int orientation, bool big)
{
    static const unsigned char little_one[] = "Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0";
    static const unsigned char big_one[] = "Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\0\0\0";
    memcpy(out, big ? big_one : little_one, 28);
    out[big ? 25 : 24] = (unsigned char)orientation;
    return 28;
}

struct jpeg_wish {
    int quality; /* 0: 90 */
    bool progressive, cmyk, ycck;
    int orientation; /* 0: no block */
};

/* cmyk: m's three colours as inks without black, the way Adobe writes them. */
static inline void encode_jpeg(struct str *out, const struct image *m, struct jpeg_wish w)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *p = NULL, exif[32];
    unsigned long n = 0;
    bool four = w.cmyk || w.ycck;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &p, &n);
    c.image_width = (JDIMENSION)m->width;
    c.image_height = (JDIMENSION)m->height;
    c.input_components = four ? 4 : m->channels;
    c.in_color_space = four ? JCS_CMYK : m->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&c);
    if (four) jpeg_set_colorspace(&c, w.ycck ? JCS_YCCK : JCS_CMYK);
    jpeg_set_quality(&c, w.quality ? w.quality : 90, TRUE);
    if (w.progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    if (w.orientation)
        jpeg_write_marker(&c, JPEG_APP0 + 1, exif, (unsigned)exif_block(exif, w.orientation, w.orientation % 2));
    unsigned char *row = xmalloc(4 * (size_t)m->width);
    for (int64_t y = 0; y < m->height; y++) {
        unsigned char *from = m->p + y * m->width * m->channels;
        for (int64_t x = 0; x < m->width && four; x++) {
            for (int i = 0; i < 3; i++) row[4 * x + i] = from[3 * x + i]; /* light through the ink */
            row[4 * x + 3] = 255;
        }
        JSAMPROW rows[] = {four ? row : from};
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    str_clear(out);
    str_add(out, p, n);
    free(p);
    xfree(row);
}

struct png_wish {
    bool alpha, palette, interlaced;
    int depth; /* 0: 8 */
    int orientation;
};

static inline void encode_png_add(png_structp png, png_bytep p, png_size_t n) { str_add(png_get_io_ptr(png), p, n); }
static inline void encode_png_end(png_structp png) { (void)png; }

/* depth 16: the upper byte is the picture's, the lower another; 1: gray of its highest bit. alpha: some of it 0.
 * palette: colours of three bits each. */
static inline void encode_png(struct str *out, const struct image *m, struct png_wish w)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    int depth = w.depth ? w.depth : 8, colours = m->channels, values = colours + w.alpha;
    int type = w.palette ? PNG_COLOR_TYPE_PALETTE
                         : (colours == 3 ? PNG_COLOR_MASK_COLOR : 0) | (w.alpha ? PNG_COLOR_MASK_ALPHA : 0);
    unsigned char exif[32];
    str_clear(out);
    png_set_write_fn(png, out, encode_png_add, encode_png_end);
    png_set_IHDR(png, info, (png_uint_32)m->width, (png_uint_32)m->height, depth, type,
                 w.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    png_color colour[256];
    for (int i = 0; i < 256; i++)
        colour[i] = (png_color){(png_byte)(i & 0xe0), (png_byte)(i << 3 & 0xe0), (png_byte)(i << 6 & 0xc0)};
    if (w.palette) png_set_PLTE(png, info, colour, 256);
    if (w.orientation) {
        size_t n = exif_block(exif, w.orientation, w.orientation % 2);
        png_set_eXIf_1(png, info, (png_uint_32)n - 6, exif + 6);
    }
    size_t bytes = (size_t)m->width * (size_t)(w.palette ? 1 : values) * (depth == 16 ? 2 : 1);
    unsigned char *all = xcalloc((size_t)m->height, bytes);
    png_bytep *rows = xmalloc((size_t)m->height * sizeof *rows);
    for (int64_t y = 0; y < m->height; y++) {
        unsigned char *to = rows[y] = all + (size_t)y * bytes;
        for (int64_t x = 0; x < m->width; x++) {
            const unsigned char *from = m->p + (y * m->width + x) * colours;
            if (w.palette) *to++ = (unsigned char)((from[0] & 0xe0) | from[1] >> 5 << 2 | from[2] >> 6);
            else if (depth == 1) to[x / 8] |= (unsigned char)((from[0] >> 7) << (7 - x % 8));
            else
                for (int v = 0; v < values; v++) {
                    *to++ = v < colours ? from[v] : (unsigned char)(x * 16);
                    if (depth == 16) *to++ = (unsigned char)(x + y);
                }
        }
    }
    png_set_rows(png, info, rows);
    png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&png, &info);
    xfree(rows);
    xfree(all);
}

/* A member of a tar archive, and its end. */
static inline void tar_add(struct str *tar, const char *name, const void *p, size_t n)
{
    char block[512] = {0};
    unsigned sum = 0;
    snprintf(block, 100, "%s", name);
    memcpy(block + 100, "0000644", 8);
    memcpy(block + 108, "0000000", 8);
    memcpy(block + 116, "0000000", 8);
    snprintf(block + 124, 12, "%011o", (unsigned)n);
    memcpy(block + 136, "00000000000", 12);
    memset(block + 148, ' ', 8);
    block[156] = '0';
    memcpy(block + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    str_add(tar, block, 512);
    str_add(tar, p, n);
    memset(block, 0, sizeof block);
    str_add(tar, block, (512 - n % 512) % 512);
}

static inline void tar_end(struct str *tar)
{
    static const char zeros[1024];
    str_add(tar, zeros, sizeof zeros);
}

#endif
