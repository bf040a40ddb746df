/* SPDX-License-Identifier: Apache-2.0 */
/* make_shards.c: tar shards of pictures for scripts.
 *
 *     make_shards out shards samples side classes [jpg|png]     out-0.tar, out-1.tar, ...
 *
 * A sample's class is the tint of its picture, which is larger or smaller, wide or high. */
#include "media/encode.h"

int main(int argc, char **argv)
{
    struct str tar = {0}, file = {0};
    if (argc < 6) return 2;
    int shards = atoi(argv[2]), samples = atoi(argv[3]), side = atoi(argv[4]), classes = atoi(argv[5]);
    const char *kind = argc > 6 ? argv[6] : "jpg";
    for (int s = 0, i = 0; s < shards; s++) {
        char path[1000], name[64], label[16];
        str_clear(&tar);
        for (int k = 0; k < samples; k++, i++) {
            int c = i % classes;
            struct image m = smooth_picture(side + i % 5, side + i % 3, c);
            if (!strcmp(kind, "png")) encode_png(&file, &m, (struct png_wish){0});
            else encode_jpeg(&file, &m, (struct jpeg_wish){0});
            snprintf(name, sizeof name, "%06d.%s", i, kind);
            tar_add(&tar, name, file.p, file.n);
            snprintf(name, sizeof name, "%06d.cls", i);
            snprintf(label, sizeof label, "%d", c);
            tar_add(&tar, name, label, strlen(label));
            image_free(&m);
        }
        tar_end(&tar);
        snprintf(path, sizeof path, "%s-%d.tar", argv[1], s);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(tar.p, 1, tar.n, f) != tar.n || fclose(f)) return 1;
    }
    str_free(&tar);
    str_free(&file);
    return 0;
}
