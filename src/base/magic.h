/* SPDX-License-Identifier: Apache-2.0 */
/* magic.h: what a file is by its first bytes, for errors about files that are not what was wanted. Includes: libc.
 * Order: Local. */
#ifndef TUTTI_BASE_MAGIC_H
#define TUTTI_BASE_MAGIC_H

#include <stdbool.h>
#include <stddef.h>

enum { MAGIC_BYTES = 512 }; /* as many of a file's first bytes as are ever looked at */

struct magic {
    const char *name;   /* "compressed by gzip" or "a PDF document": goes after "is" */
    const char *remedy; /* what a person does to have text, as an order: "unpack it: ..."; NULL: nothing general */
};
/* NULL: none that is known. To be asked of what is no text: a text may begin with some of these letters. */
const struct magic *magic_of(const void *p, size_t n);
/* Only those that are made of letters and are no text all the same: a git-lfs pointer, PDF, RTF. */
const struct magic *magic_in_letters(const void *p, size_t n);
/* magic_of of a file; NULL also where it cannot be read. */
const struct magic *magic_of_file(const char *path);
/* The file is a git-lfs pointer: the few lines that stand for a file whose content was not downloaded. */
bool magic_is_lfs_pointer(const char *path);

#endif
