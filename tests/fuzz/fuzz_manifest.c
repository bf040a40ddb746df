/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_manifest.c: any bytes as a manifest. The checksum would stop nearly all of them, so the input is sealed first
 * (the checksum of whatever it is, put at its end): what is tested are the checks behind it. What parses is printed
 * and parses again to the same text. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char seal_head[] = ",\n\"xxh64\":\"", seal_tail[] = "\"}\n";

/* data without its own seal, if it has one, and with the right one. */
static struct str sealed(const uint8_t *data, size_t n)
{
    struct str s = {0};
    char hash[17];
    size_t seal = strlen(seal_head) + 16 + strlen(seal_tail);
    if (n >= seal && !memcmp(data + n - strlen(seal_tail), seal_tail, strlen(seal_tail))) n -= seal;
    str_add(&s, data, n);
    hash64_print(hash, hash64(data, n));
    str_puts(&s, seal_head);
    str_puts(&s, hash);
    str_puts(&s, seal_tail);
    return s;
}

/* Parses; prints what it says. False when refused. */
static bool read_and_print(const char *text, size_t n, bool part, struct str *out)
{
    struct manifest m;
    struct err e = {0};
    if (manifest_parse(&m, text, n, "fuzz.json", part, &e)) {
        CHECK(strstr(e.text, "fuzz.json"), "an error without its place: %s", e.text);
        return false;
    }
    for (int i = 0; i < m.n_tensors; i++) {
        const struct manifest_tensor *t = &m.tensors[i];
        CHECK(part || manifest_find(&m, t->group, t->name) == i, "%s is not found", t->name);
        int64_t sum = 0;
        for (int k = 0; k < t->n_boxes; k++) sum += region_volume(&t->boxes[k].box);
        CHECK(part || sum == shape_numel(&t->shape), "%s is not whole", t->name);
    }
    manifest_print(&m, out);
    manifest_fini(&m);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str input = sealed(data, n);
    for (int part = 0; part < 2; part++) {
        struct str once = {0}, twice = {0};
        if (read_and_print(input.p, input.n, part, &once)) {
            CHECK(read_and_print(once.p, once.n, part, &twice), "what was printed does not parse:\n%s", once.p);
            CHECK(!strcmp(once.p, twice.p), "printed\n%s\nand then\n%s", once.p, twice.p);
        }
        str_free(&once);
        str_free(&twice);
    }
    str_free(&input);
    return 0;
}
