/* SPDX-License-Identifier: Apache-2.0 */
/* seen_keys.h: which keys of samples an archive has had, so that a sample whose members do not follow each other is
 * noticed where it comes again, instead of being read as two. 16 bytes a key and as much room again; two keys whose
 * 128-bit hashes are the same would be taken for one. Includes: base. Order: Local. */
#ifndef TUTTI_SOURCE_SEEN_KEYS_H
#define TUTTI_SOURCE_SEEN_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEEN_KEYS_AGAIN                                                                                                \
    "comes again, behind members of others: what belongs together has to follow each other (tar --sort=name)"

struct seen_keys { /* begins as zeros */
    uint64_t (*place)[2];
    uint64_t n, room;
};
/* Adds the key: true where it was there before. */
bool seen_keys_add(struct seen_keys *s, const char *key, size_t n);
void seen_keys_free(struct seen_keys *s);

#endif
