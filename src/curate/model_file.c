/* SPDX-License-Identifier: Apache-2.0 */
/* model_file.c: see model_file.h. */
#include "curate/model_file.h"

#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"

static const char magic[8] = {'T', 'U', 'T', 'T', 'I', 'M', 'O', 'D'};
enum { HEAD = 24, TAIL = 8 };

void model_put(struct str *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) str_putc(out, (char)(v >> 8 * i & 255));
}

void model_put_real(struct str *out, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    model_put(out, bits, 4);
}

const unsigned char *model_take(struct model_bytes *b, size_t n)
{
    if (n > b->n) {
        b->ended = true;
        b->n = 0;
        return NULL;
    }
    const unsigned char *p = b->p;
    b->p += n;
    b->n -= n;
    return p;
}

uint64_t model_get(struct model_bytes *b, int bytes)
{
    const unsigned char *p = model_take(b, (size_t)bytes);
    uint64_t v = 0;
    for (int i = 0; p && i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

float model_get_real(struct model_bytes *b)
{
    uint32_t bits = (uint32_t)model_get(b, 4);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

int model_file_write(const char *path, enum model_kind kind, uint32_t version, const struct str *payload, struct err *e)
{
    struct str file = {0};
    str_add(&file, magic, sizeof magic);
    model_put(&file, kind, 4);
    model_put(&file, version, 4);
    model_put(&file, payload->n, 8);
    str_add(&file, str_text(payload), payload->n);
    model_put(&file, hash64(str_text(payload), payload->n), 8);
    int code = fs_write_atomic(path, file.p, file.n, e);
    str_free(&file);
    return code;
}

static int check(const char *path, const char *text, size_t n, enum model_kind kind, uint32_t version, const char *what,
                 struct err *e)
{
    struct model_bytes b = {.p = (const unsigned char *)text, .n = n};
    const unsigned char *begin = model_take(&b, sizeof magic);
    uint64_t its_kind = model_get(&b, 4), its_version = model_get(&b, 4), bytes = model_get(&b, 8);
    if (!begin || b.ended || memcmp(begin, magic, sizeof magic) != 0)
        return err_set(e, ERR_REQUEST, "%s: is not %s of tutti", path, what);
    if (its_kind != kind) return err_set(e, ERR_REQUEST, "%s: is a model of another kind, not %s", path, what);
    if (its_version != version)
        return err_set(e, ERR_REQUEST, "%s: is of version %llu; this program reads %u; train it again", path,
                       (unsigned long long)its_version, version);
    if (n < HEAD + TAIL || bytes != n - HEAD - TAIL)
        return err_set(e, ERR_CORRUPT, "%s: has %zu bytes, wanted %llu: cut short or longer; train it again", path, n,
                       (unsigned long long)bytes + HEAD + TAIL);
    struct model_bytes end = {.p = (const unsigned char *)text + n - TAIL, .n = TAIL};
    if (model_get(&end, 8) != hash64(text + HEAD, n - HEAD - TAIL))
        return err_set(e, ERR_CORRUPT, "%s: its checksum is another: the file is damaged; train it again", path);
    return OK;
}

int model_file_read(const char *path, enum model_kind kind, uint32_t version, const char *what, char **payload,
                    size_t *n, struct err *e)
{
    enum { MOST = 1 << 30 };
    char *text;
    size_t all;
    *payload = NULL;
    int code = fs_read_all(path, MOST, &text, &all, e);
    if (code) return code;
    code = check(path, text, all, kind, version, what, e);
    if (!code) {
        *n = all - HEAD - TAIL;
        memmove(text, text + HEAD, *n);
        *payload = text;
        return OK;
    }
    xfree(text);
    return code;
}
