/* SPDX-License-Identifier: Apache-2.0 */
/* pil_results.h: made by make_media.py of pillow 13.0.0 and numpy; not to be edited. */
#ifndef TUTTI_TESTS_PIL_RESULTS_H
#define TUTTI_TESTS_PIL_RESULTS_H

static const struct {
    int64_t width, height;
    int channels;
    int64_t to_width, to_height;
    enum resize_filter filter;
    uint64_t sum;
} pil_resized[] = {
    {1, 1, 3, 5, 3, RESIZE_BICUBIC, 0x6d2edf3cf10ba94eu},
    {1, 1, 3, 5, 3, RESIZE_BILINEAR, 0x6d2edf3cf10ba94eu},
    {2, 3, 3, 224, 224, RESIZE_BICUBIC, 0xa79546a8b0154119u},
    {2, 3, 3, 224, 224, RESIZE_BILINEAR, 0xf3279a6954a2e6adu},
    {64, 48, 3, 32, 32, RESIZE_BICUBIC, 0x45075b58a90eaff9u},
    {64, 48, 3, 32, 32, RESIZE_BILINEAR, 0xf3d4ea4d493ebc65u},
    {500, 375, 3, 224, 224, RESIZE_BICUBIC, 0x3a061b98609fcd45u},
    {500, 375, 3, 224, 224, RESIZE_BILINEAR, 0xbdc09590e3bcd4c2u},
    {97, 131, 3, 64, 200, RESIZE_BICUBIC, 0x76f1933bbb7f6cb7u},
    {97, 131, 3, 64, 200, RESIZE_BILINEAR, 0x4800cbb26b48faddu},
    {333, 77, 3, 333, 20, RESIZE_BICUBIC, 0x93da3819b6b1d200u},
    {333, 77, 3, 333, 20, RESIZE_BILINEAR, 0x9a3a28617a80aafbu},
    {33, 200, 3, 80, 200, RESIZE_BICUBIC, 0x505147d25f43f105u},
    {33, 200, 3, 80, 200, RESIZE_BILINEAR, 0x94cbb67a1920c9afu},
    {640, 9, 3, 17, 31, RESIZE_BICUBIC, 0xb4635040a1dc1d8du},
    {640, 9, 3, 17, 31, RESIZE_BILINEAR, 0x832909d5f54181e6u},
    {1000, 700, 3, 3, 2, RESIZE_BICUBIC, 0xf54118e3b8cb4320u},
    {1000, 700, 3, 3, 2, RESIZE_BILINEAR, 0x3b62dbe66832a33cu},
    {1, 1, 1, 5, 3, RESIZE_BICUBIC, 0x2eb09ce4c4320587u},
    {1, 1, 1, 5, 3, RESIZE_BILINEAR, 0x2eb09ce4c4320587u},
    {2, 3, 1, 224, 224, RESIZE_BICUBIC, 0x1aa2db7ec989a611u},
    {2, 3, 1, 224, 224, RESIZE_BILINEAR, 0x3672556c0101bb51u},
    {64, 48, 1, 32, 32, RESIZE_BICUBIC, 0x44546f803d34c1fau},
    {64, 48, 1, 32, 32, RESIZE_BILINEAR, 0xd3675425fd244ac1u},
    {500, 375, 1, 224, 224, RESIZE_BICUBIC, 0x84168c12f27a8efdu},
    {500, 375, 1, 224, 224, RESIZE_BILINEAR, 0x0acce990835e5e45u},
    {97, 131, 1, 64, 200, RESIZE_BICUBIC, 0x5ace79794a218d59u},
    {97, 131, 1, 64, 200, RESIZE_BILINEAR, 0xfde700f026249ff4u},
    {333, 77, 1, 333, 20, RESIZE_BICUBIC, 0x3561e0605981c4cfu},
    {333, 77, 1, 333, 20, RESIZE_BILINEAR, 0xa33a46895c187f48u},
    {33, 200, 1, 80, 200, RESIZE_BICUBIC, 0x2fa163294477c6c0u},
    {33, 200, 1, 80, 200, RESIZE_BILINEAR, 0x92bb849576b7df71u},
    {640, 9, 1, 17, 31, RESIZE_BICUBIC, 0x73940ba42c927c96u},
    {640, 9, 1, 17, 31, RESIZE_BILINEAR, 0xe9a7f765320385c2u},
    {1000, 700, 1, 3, 2, RESIZE_BICUBIC, 0x21e3b6289ae56de2u},
    {1000, 700, 1, 3, 2, RESIZE_BILINEAR, 0xa54dd9df1d573891u},
};

static const uint64_t pil_gray = 0xdc8d12650e0e0331u;
static const uint64_t pil_turned[9] = {0,
                                       0xcf7918d854fa074eu,
                                       0x7f5df14cccab52fau,
                                       0x7233a6e2f5c31632u,
                                       0x9ceecbb21357a9c6u,
                                       0x95c07f72459e2a46u,
                                       0xe03e92ccf80a1bfeu,
                                       0xc8e4003501f3ef02u,
                                       0xd167b894daddf4f2u};

static const struct {
    int band, window;
    double value;
} numpy_mel[] = {
    {0, 0, 1.15137656},    {5, 0, 1.0767049},     {11, 50, 1.43820342},   {40, 50, -0.507472747},
    {79, 99, -0.36454192}, {20, 37, 0.245022927}, {60, 80, -0.507472747}, {11, 99, 1.43568076},
};

#endif
