/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"

void sha256(const void *p, size_t n, unsigned char out[SHA256_BYTES])
{
    CHECK(EVP_Digest(p, n, out, NULL, EVP_sha256(), NULL) == 1, "libcrypto has no SHA-256");
}

void sha256_keyed(const void *key, size_t key_n, const void *p, size_t n, unsigned char out[SHA256_BYTES])
{
    CHECK(HMAC(EVP_sha256(), key, to_int((int64_t)key_n), p, n, out, NULL), "libcrypto has no HMAC of SHA-256");
}

char *sha256_text(char out[SHA256_TEXT], const unsigned char sum[SHA256_BYTES])
{
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return out;
}

bool md5_text(char out[MD5_TEXT], const void *p, size_t n)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    *out = 0;
    if (EVP_Digest(p, n, sum, &bytes, EVP_md5(), NULL) != 1 || 2 * bytes + 1 != MD5_TEXT) return false;
    for (unsigned int i = 0; i < bytes; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return true;
}
