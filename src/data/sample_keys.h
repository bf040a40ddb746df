/* SPDX-License-Identifier: Apache-2.0 */
/* sample_keys.h: keys of samples → numbers, for joins by key. A key is kept as 128 bits of hash: of a billion two
 * are mistaken for one with a chance below 1e-20. 24 bytes a place, half of which are empty at most. Includes: base.
 * Order: Local. */
#ifndef TUTTI_DATA_SAMPLE_KEYS_H
#define TUTTI_DATA_SAMPLE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

struct sample_keys_place;
struct sample_keys { /* zeros: empty */
    struct sample_keys_place *place;
    int64_t n, room;
};
/* value >= 0. false: the key is there already, and stays as it is. */
bool sample_keys_add(struct sample_keys *k, const char *key, int64_t value);
int64_t sample_keys_find(const struct sample_keys *k, const char *key); /* -1: it is not there */
void sample_keys_free(struct sample_keys *k);

#endif
