/* SPDX-License-Identifier: Apache-2.0 */
#include "source/snappy.h"

#include <snappy-c.h>

const char *snappy_piece(const void *p, size_t n, void *out, size_t n_out)
{
    size_t length = 0, given = n_out;
    if (snappy_uncompressed_length(p, n, &length) != SNAPPY_OK || length != n_out)
        return "its Snappy data are not as long as they should be";
    return snappy_uncompress(p, n, out, &given) == SNAPPY_OK && given == n_out ? NULL : "its Snappy data are damaged";
}
