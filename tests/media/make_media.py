#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Results of PIL and numpy for tests/media/test_view.c and test_audio.c, which the test suite compares with without Python.

    python3 tests/media/make_media.py > tests/media/pil_results.h      (wants pillow and numpy)

Pictures are made by a formula that the test has too: pixel (x, y), channel c is the low byte of
(x * 7 + y * 13 + c * 101 + (x * y) % 31 * 5). Of each result the checksum is stored: FNV-1a over its bytes, 64 bits.
"""
import math
import sys

import numpy
import PIL
from PIL import Image


def picture(width, height, channels):
    x, y, c = numpy.meshgrid(numpy.arange(width), numpy.arange(height), numpy.arange(channels), indexing="xy")
    p = ((x * 7 + y * 13 + c * 101 + (x * y) % 31 * 5) & 255).astype(numpy.uint8)
    return Image.fromarray(p if channels == 3 else p[:, :, 0])


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def resizes():
    filters = {"RESIZE_BICUBIC": Image.Resampling.BICUBIC, "RESIZE_BILINEAR": Image.Resampling.BILINEAR}
    sizes = [(1, 1, 5, 3), (2, 3, 224, 224), (64, 48, 32, 32), (500, 375, 224, 224), (97, 131, 64, 200), (333, 77, 333, 20),
             (33, 200, 80, 200), (640, 9, 17, 31), (1000, 700, 3, 2)]
    for channels in (3, 1):
        for w, h, to_w, to_h in sizes:
            for name, f in filters.items():
                out = picture(w, h, channels).resize((to_w, to_h), f)
                yield f"    {{{w}, {h}, {channels}, {to_w}, {to_h}, {name}, 0x{fnv(out.tobytes()):016x}u}},"


def gray():
    return fnv(picture(200, 100, 3).convert("L").tobytes())


def turned(orientation):
    how = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
           8: "ROTATE_90"}
    p = picture(23, 11, 3)
    return fnv((p.transpose(getattr(Image.Transpose, how[orientation])) if orientation in how else p).tobytes())


def mel():
    """Whisper's features as its authors define them, in double precision: some values of a sound made by a formula."""
    n = numpy.arange(16000)
    sound = (0.5 * numpy.sin(2 * math.pi * 440 * n / 16000) + 0.25 * numpy.sin(2 * math.pi * (200 + n / 16) * n / 16000)).astype(numpy.float32).astype(float)
    window = 0.5 - 0.5 * numpy.cos(2 * math.pi * numpy.arange(400) / 400)
    padded = numpy.pad(sound, 200, mode="reflect")
    frames = numpy.stack([padded[i * 160: i * 160 + 400] * window for i in range(len(sound) // 160)])
    power = numpy.abs(numpy.fft.rfft(frames)) ** 2
    hz = lambda m: m * 200 / 3 if m < 15 else 1000 * math.exp((m - 15) / 27 * math.log(6.4))
    top = 15 + 27 * math.log(8) / math.log(6.4)
    edges = numpy.array([hz(top * i / 81) for i in range(82)])
    bins = numpy.arange(201) * 40.0
    bank = numpy.maximum(0, numpy.minimum((bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None],
                                          (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]))
    bank *= (2 / (edges[2:] - edges[:-2]))[:, None]
    log = numpy.log10(numpy.maximum(power @ bank.T, 1e-10)).T
    log = (numpy.maximum(log, log.max() - 8) + 4) / 4
    for band, at in [(0, 0), (5, 0), (11, 50), (40, 50), (79, 99), (20, 37), (60, 80), (11, 99)]:
        yield f"    {{{band}, {at}, {log[band, at]:.9g}}},"


print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* pil_results.h: made by make_media.py of pillow {PIL.__version__} and numpy; not to be edited. */")
print("#ifndef TUTTI_TESTS_PIL_RESULTS_H\n#define TUTTI_TESTS_PIL_RESULTS_H\n")
print("static const struct {\n    int64_t width, height;\n    int channels;\n    int64_t to_width, to_height;\n    enum resize_filter filter;\n    uint64_t sum;\n} pil_resized[] = {")
print("\n".join(resizes()))
print("};\n")
print(f"static const uint64_t pil_gray = 0x{gray():016x}u;")
print("static const uint64_t pil_turned[9] = {0, " + ", ".join(f"0x{turned(i):016x}u" for i in range(1, 9)) + "};\n")
print("static const struct {\n    int band, window;\n    double value;\n} numpy_mel[] = {")
print("\n".join(mel()))
print("};\n\n#endif")
