/* SPDX-License-Identifier: Apache-2.0 */
#include "source/blob_remote.h"

#include "base/mem.h"

struct object_blob {
    struct blob blob;
    struct object *object;
};

static int blob_object_read(struct blob *b, int64_t at, size_t n, void *out, size_t *got, struct err *e)
{
    const struct object_blob *o = (const struct object_blob *)b;
    int64_t left = at < b->bytes ? b->bytes - at : 0;
    size_t take = (int64_t)n < left ? n : (size_t)left;
    int code = take ? object_read(o->object, at, take, out, e) : OK;
    *got = code ? 0 : take;
    return code;
}

static void blob_object_close(struct blob *b)
{
    struct object_blob *o = (struct object_blob *)b;
    object_close(o->object);
    xfree(o);
}

static const struct blob_ops object_ops = {"object", blob_object_read, blob_object_close};

int blob_of_object(struct blob **b, struct remote *r, const char *url, const struct remote_about *about, struct err *e)
{
    struct object *object;
    *b = NULL;
    int code = object_open(&object, r, url, about, e);
    if (code) return code;
    struct object_blob *o = xcalloc(1, sizeof *o);
    *o = (struct object_blob){{&object_ops, xstrdup(object_name(object)), object_bytes(object)}, object};
    *b = &o->blob;
    return OK;
}

static int file_object_read(void *of, int64_t at, size_t n, void *out, struct err *e)
{
    return object_read(of, at, n, out, e);
}

static void file_object_close(void *of) { object_close(of); }

static const struct fs_elsewhere elsewhere = {file_object_read, file_object_close};

int file_of_object(struct fs_file *f, struct remote *r, const char *url, const struct remote_about *about,
                   struct err *e)
{
    struct object *object;
    *f = (struct fs_file){.fd = -1};
    int code = object_open(&object, r, url, about, e);
    if (code) return code;
    *f = (struct fs_file){.fd = -1,
                          .path = xstrdup(object_name(object)),
                          .bytes = object_bytes(object),
                          .identity = {remote_version(url, about)},
                          .elsewhere = &elsewhere,
                          .of = object};
    return OK;
}
