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

/* ---- MD5 ---- */

struct md5 {
    EVP_MD_CTX *c;
};

void md5_free(struct md5 *m)
{
    if (m) EVP_MD_CTX_free(m->c);
    xfree(m);
}

struct md5 *md5_new(void)
{
    struct md5 *m = xmalloc(sizeof *m);
    m->c = EVP_MD_CTX_new();
    CHECK(m->c, "libcrypto has no memory");
    if (EVP_DigestInit_ex(m->c, EVP_md5(), NULL) == 1) return m;
    md5_free(m);
    return NULL;
}

void md5_add(struct md5 *m, const void *p, size_t n) { CHECK(EVP_DigestUpdate(m->c, p, n) == 1, "libcrypto's MD5"); }

void md5_end(struct md5 *m, char out[MD5_TEXT])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    CHECK(EVP_DigestFinal_ex(m->c, sum, &bytes) == 1 && 2 * bytes + 1 == MD5_TEXT, "libcrypto's MD5");
    for (unsigned int i = 0; i < bytes; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
    md5_free(m);
}

bool md5_text(char out[MD5_TEXT], const void *p, size_t n)
{
    struct md5 *m = md5_new();
    *out = 0;
    if (!m) return false;
    md5_add(m, p, n);
    md5_end(m, out);
    return true;
}
