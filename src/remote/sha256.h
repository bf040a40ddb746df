/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h: SHA-256 (FIPS 180-4) and its keyed form, HMAC (RFC 2104); MD5, which stores answer with. The library
 * (OpenSSL's libcrypto) is named in sha256.c only. Includes: base. Order: Local. */
#ifndef TUTTI_REMOTE_SHA256_H
#define TUTTI_REMOTE_SHA256_H

#include <stdbool.h>
#include <stddef.h>

enum { SHA256_BYTES = 32, SHA256_TEXT = 65, MD5_TEXT = 33 };

void sha256(const void *p, size_t n, unsigned char out[SHA256_BYTES]);
void sha256_keyed(const void *key, size_t key_n, const void *p, size_t n, unsigned char out[SHA256_BYTES]);
char *sha256_text(char out[SHA256_TEXT], const unsigned char sum[SHA256_BYTES]); /* lower-case hexadecimal */
/* Lower-case hexadecimal, too: the ETag of what a store was given at once. False: the library does without MD5. */
bool md5_text(char out[MD5_TEXT], const void *p, size_t n);
/* The same of what comes in pieces. NULL: the library does without MD5. */
struct md5;
struct md5 *md5_new(void);
void md5_add(struct md5 *m, const void *p, size_t n);
void md5_end(struct md5 *m, char out[MD5_TEXT]); /* and frees it */
void md5_free(struct md5 *m);                    /* NULL is fine */

#endif
