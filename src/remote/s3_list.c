/* SPDX-License-Identifier: Apache-2.0 */
/* s3_list.c: <ListBucketResult> with its <Contents>, <ListMultipartUploadsResult> with its <Upload>s, in any order of
 * elements. */
#include "remote/s3_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "remote/url.h"
#include "remote/xml.h"

struct page {
    struct s3_entry entry; /* the object whose elements are being read */
    bool in_contents, in_list, whole, more, encoded, has_bytes;
    char *next;
};

static void keep(char **to, const struct str *text)
{
    xfree(*to);
    *to = xstrdup(str_text(text));
}

static void element(struct page *g, const char *name, const struct str *text)
{
    if (g->in_contents) {
        if (!strcmp(name, "Key")) keep(&g->entry.key, text);
        else if (!strcmp(name, "ETag")) keep(&g->entry.etag, text);
        else if (!strcmp(name, "Size")) {
            char *end;
            long long n = strtoll(str_text(text), &end, 10);
            g->has_bytes = text->n && !*end && n >= 0;
            g->entry.bytes = n;
        }
    } else if (!strcmp(name, "IsTruncated")) {
        g->more = !strcmp(str_text(text), "true");
    } else if (!strcmp(name, "NextContinuationToken")) {
        keep(&g->next, text);
    } else if (!strcmp(name, "EncodingType")) {
        g->encoded = !strcmp(str_text(text), "url");
    }
}

static void drop(struct page *g)
{
    xfree(g->entry.key);
    xfree(g->entry.etag);
    g->entry = (struct s3_entry){0};
    g->has_bytes = false;
}

/* </Contents>: false where it lacked something. */
static bool put(struct page *g, struct s3_list *l)
{
    if (!g->entry.key || !*g->entry.key || !g->has_bytes) return false;
    if (!g->entry.etag) g->entry.etag = xstrdup("");
    GROW(l->entry, l->n, l->room, 1);
    l->entry[l->n++] = g->entry;
    g->entry = (struct s3_entry){0};
    g->has_bytes = false;
    return true;
}

/* A space comes as a plus, a plus as %2B. */
static void decode(char *key)
{
    for (char *p = key; (p = strchr(p, '+'));) *p = ' ';
    url_decode(key);
}

static bool walk(struct page *g, struct s3_list *l, struct xml *x, struct str *text)
{
    while (xml_next(x)) {
        bool contents = !strcmp(x->name, "Contents"), list = !strcmp(x->name, "ListBucketResult");
        if (x->kind == XML_OPEN && list) g->in_list = true;
        else if (x->kind == XML_OPEN && contents) g->in_contents = true;
        else if (x->kind == XML_CLOSE && list) g->whole = g->in_list;
        else if (x->kind == XML_CLOSE && contents) {
            if (!put(g, l)) return false;
            g->in_contents = false;
        } else if (x->kind == XML_TEXT && g->in_list) {
            xml_text(x, text);
            element(g, x->name, text);
        }
    }
    return !x->bad && g->whole && (!g->more || g->next);
}

int s3_list_add(struct s3_list *l, const char *xml, size_t n, const char *what, struct err *e)
{
    struct page g = {0};
    struct xml x = {.p = xml, .end = xml + n};
    struct str text = {0};
    int64_t before = l->n;
    bool good = walk(&g, l, &x, &text);
    drop(&g);
    str_free(&text);
    xfree(l->next);
    l->next = g.more ? g.next : NULL;
    if (!g.more) xfree(g.next);
    if (!good)
        return err_set(e, ERR_IO, "%s: the list of its objects is no answer of ListObjectsV2, or was cut short", what);
    for (int64_t i = before; g.encoded && i < l->n; i++) decode(l->entry[i].key);
    return OK;
}

void s3_list_free(struct s3_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        xfree(l->entry[i].key);
        xfree(l->entry[i].etag);
    }
    xfree(l->entry);
    xfree(l->next);
    *l = (struct s3_list){0};
}

/* ---- uploads ---- */

static bool walk_uploads(struct s3_uploads *l, struct xml *x, struct str *text)
{
    struct s3_upload now = {0};
    bool in_list = false, in_upload = false, whole = false, encoded = false, good = true;
    while (good && xml_next(x)) {
        bool upload = !strcmp(x->name, "Upload"), list = !strcmp(x->name, "ListMultipartUploadsResult");
        if (x->kind == XML_OPEN && list) in_list = true;
        else if (x->kind == XML_OPEN && upload) in_upload = true;
        else if (x->kind == XML_CLOSE && list) whole = in_list;
        else if (x->kind == XML_CLOSE && upload) {
            good = now.key && *now.key && now.id && *now.id;
            in_upload = false;
            if (!good) break;
            GROW(l->upload, l->n, l->room, 1);
            l->upload[l->n++] = now;
            now = (struct s3_upload){0};
        } else if (x->kind == XML_TEXT && in_list) {
            xml_text(x, text);
            if (in_upload && !strcmp(x->name, "Key")) keep(&now.key, text);
            else if (in_upload && !strcmp(x->name, "UploadId")) keep(&now.id, text);
            else if (!in_upload && !strcmp(x->name, "IsTruncated")) l->more = !strcmp(str_text(text), "true");
            else if (!in_upload && !strcmp(x->name, "EncodingType")) encoded = !strcmp(str_text(text), "url");
        }
    }
    xfree(now.key);
    xfree(now.id);
    for (int64_t i = 0; encoded && i < l->n; i++) decode(l->upload[i].key);
    return good && !x->bad && whole;
}

int s3_uploads_read(struct s3_uploads *l, const char *xml, size_t n, const char *what, struct err *e)
{
    struct xml x = {.p = xml, .end = xml + n};
    struct str text = {0};
    bool good = walk_uploads(l, &x, &text);
    str_free(&text);
    if (good) return OK;
    return err_set(e, ERR_IO, "%s: the list of its uploads is no answer of ListMultipartUploads, or was cut short",
                   what);
}

void s3_uploads_free(struct s3_uploads *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        xfree(l->upload[i].key);
        xfree(l->upload[i].id);
    }
    xfree(l->upload);
    *l = (struct s3_uploads){0};
}
