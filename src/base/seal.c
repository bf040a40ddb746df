/* SPDX-License-Identifier: Apache-2.0 */
/* seal.c: see seal.h. Every byte of the text is one that the checksum covers, or one that has one value only. */
#include "base/seal.h"

#include <string.h>

#include "base/hash.h"

static const char head[] = ",\n\"xxh64\":\"", tail[] = "\"}\n";
enum { HEAD = sizeof head - 1, DIGITS = 16, TAIL = sizeof tail - 1, SEAL = HEAD + DIGITS + TAIL };

void seal_add(struct str *text)
{
    char hash[DIGITS + 1];
    hash64_print(hash, hash64(text->p, text->n));
    str_puts(text, head);
    str_puts(text, hash);
    str_puts(text, tail);
}

int seal_check(const char *text, size_t n, const char *what, const char *remedy, struct err *e)
{
    const char *then = remedy ? "; " : "", *last = remedy ? remedy : "";
    if (n < SEAL) return err_set(e, ERR_CORRUPT, "%s: %zu bytes: cut short%s%s", what, n, then, last);
    const char *seal = text + n - SEAL;
    char hex[DIGITS + 1] = {0};
    uint64_t written, found = hash64(text, n - SEAL);
    memcpy(hex, seal + HEAD, DIGITS);
    if (memcmp(seal, head, HEAD) || hash64_parse(hex, &written) || memcmp(seal + HEAD + DIGITS, tail, TAIL))
        return err_set(e, ERR_CORRUPT, "%s: does not end in its checksum: cut short or changed%s%s", what, then, last);
    if (found == written) return OK;
    return err_set(e, ERR_CORRUPT,
                   "%s: its bytes have checksum %016llx, %016llx was written: it was changed or damaged%s%s", what,
                   (unsigned long long)found, (unsigned long long)written, then, last);
}
