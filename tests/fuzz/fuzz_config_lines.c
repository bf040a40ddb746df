/* SPDX-License-Identifier: Apache-2.0 */
/* A printed config of whatever bytes: keys and values stay in their room, and reading ends. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "config/config_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = xstrndup((const char *)data, size);
    struct config_lines r = {.at = text};
    size_t lines = 0;
    while (config_lines_next(&r)) {
        CHECK(strlen(r.key) < CONFIG_KEY && strlen(r.value) < CONFIG_VALUE, "more than there is room for");
        CHECK(r.level >= 0 && r.level < CONFIG_LEVELS, "level %d", r.level);
        CHECK(++lines <= size, "more lines than bytes");
    }
    xfree(text);
    return 0;
}
