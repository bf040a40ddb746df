/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hf_config.c: any bytes as a model's config.json: refused with words that name the file, or a model whose config,
 * written down, is read as the same model. */
#include <string.h>

#include "base/mem.h"
#include "hub/hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool read_config(struct hf_model *m, const char *text, size_t n, bool strict)
{
    static const char *const some[] = {"attention_bias", "rope_scaling.factor", "x"};
    struct hf_ignore ignore = {.keys = some, .n = 3};
    struct json *root;
    struct err e = {0};
    if (json_parse(&root, text, n, "fuzz.json", &e)) return false;
    int rc = hf_config_parse(m, root, strict ? NULL : &ignore, "fuzz.json", &e);
    CHECK(!rc || strstr(e.text, "fuzz.json"), "an error without its place: %s", e.text);
    json_free(root);
    return !rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct hf_model m, again;
    struct str once = {0}, twice = {0};
    if (read_config(&m, (const char *)data, n, false)) {
        hf_config_put(&(struct json_out){.s = &once}, NULL, &m, DT_F32);
        CHECK(read_config(&again, once.p, once.n, true), "what was written is refused:\n%s", once.p);
        hf_config_put(&(struct json_out){.s = &twice}, NULL, &again, DT_F32);
        CHECK(!strcmp(once.p, twice.p), "wrote\n%s\nand then\n%s", once.p, twice.p);
        CHECK(hf_n_params(&m) == hf_n_params(&again), "parameters");
    }
    str_free(&once);
    str_free(&twice);
    return 0;
}
