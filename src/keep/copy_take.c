/* SPDX-License-Identifier: Apache-2.0 */
/* A copy is fetched into a folder that has no published name, and gets one when all of it was read back from this
 * host's disk and has its checksums (ckpt_adopt). Files come one after the other, in pieces. */
#include <string.h>

#include "base/mem.h"
#include "keep/copy_place_impl.h"

#define PIECE ((int64_t)8 << 20)

int copy_reader_open(struct copy_reader *r, struct copy_place *p, const char *path, struct err *e)
{
    struct remote_about about;
    *r = (struct copy_reader){.f = {.fd = -1}};
    int rc;
    if (remote_is(path)) {
        rc = remote_look(p->r, path, &about, e);
        if (!rc) rc = object_open(&r->o, p->r, path, &about, e);
        if (!rc) r->bytes = object_bytes(r->o);
    } else {
        rc = fs_file_open(&r->f, path, e);
        if (!rc) r->bytes = r->f.bytes;
    }
    return rc;
}

void copy_reader_close(struct copy_reader *r)
{
    object_close(r->o);
    fs_file_close(&r->f);
    *r = (struct copy_reader){.f = {.fd = -1}};
}

int copy_read(void *reader, int64_t at, size_t n, void *out, struct err *e)
{
    const struct copy_reader *r = reader;
    return r->o ? object_read(r->o, at, n, out, e) : fs_file_read(&r->f, at, n, out, e);
}

int copy_write(const char *path, struct copy_reader *from, struct err *e)
{
    struct fs_writer *w;
    int rc = fs_writer_open(&w, path, e);
    if (rc) return rc;
    void *piece = xmalloc(to_size(PIECE));
    for (int64_t at = 0; at < from->bytes && !rc; at += PIECE) {
        size_t n = to_size(from->bytes - at < PIECE ? from->bytes - at : PIECE);
        rc = copy_read(from, at, n, piece, e);
        if (!rc) rc = fs_writer_write(w, piece, n, e);
    }
    xfree(piece);
    int closed = fs_writer_close(w, true, rc ? NULL : e);
    return rc ? rc : closed;
}

static int take_file(struct copy_place *p, int64_t step, const char *name, const char *dir, struct err *e)
{
    char *to = fs_join(dir, name), *from = copy_name(p, step, name);
    struct copy_reader r;
    int rc = copy_reader_open(&r, p, from, e);
    if (!rc) rc = copy_write(to, &r, e);
    copy_reader_close(&r);
    if (rc == ERR_REQUEST && e) rc = (int)(e->code = ERR_IO); /* it was listed: forbidden, or gone meanwhile */
    xfree(from);
    xfree(to);
    return rc;
}

int copy_place_take(struct copy_place *p, int64_t step, const char *root, struct err *e)
{
    struct manifest m;
    char *dir = ckpt_temporary(root, step), *path = fs_join(dir, MANIFEST_NAME);
    int rc = ckpt_save_begin(root, step, e);
    if (!rc) rc = take_file(p, step, MANIFEST_NAME, dir, e);
    if (!rc) rc = manifest_read(&m, path, false, e);
    if (!rc) {
        for (int i = 0; i < m.n_files && !rc; i++) rc = take_file(p, step, m.files[i].name, dir, e);
        manifest_fini(&m);
    }
    if (!rc) rc = ckpt_adopt(root, step, e);
    if (rc) ckpt_save_abort(root, step, 0, NULL);
    xfree(path);
    xfree(dir);
    return rc;
}
