/* SPDX-License-Identifier: Apache-2.0 */
/* source_list.c: walks folders.
 *
 * Depth first, names in byte order. Links are followed; a folder is entered once, told apart by device and inode,
 * which ends loops and also keeps text that is reachable twice from counting twice. Only names are kept (about a
 * hundred bytes a file), and everything is listed before anything is read: progress knows the total.
 */
#include "source/source_list.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "source/brace.h"
#include "base/str.h"
#include "source/source.h"

enum { DEPTH_MAX = 200 };

struct folder_id {
    uint64_t device, inode;
};

struct walk {
    struct source_list *list;
    struct folder_id *seen; /* hash table, inode 0 is empty */
    uint64_t n_seen, mask;
    int64_t n_unreadable;
};

static void list_put(struct source_list *l, const char *path, const struct stat *st, bool named)
{
    GROW(l->files, l->n, l->room, 1);
    l->files[l->n++] = (struct source_file){
        .path = xstrdup(path),
        .bytes = st->st_size,
        .changed_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .named = named,
    };
    l->bytes += st->st_size;
}

/* True the first time. */
static bool first_visit(struct walk *w, const struct stat *st)
{
    if (2 * w->n_seen >= w->mask) {
        struct walk old = *w;
        w->mask = old.seen ? 2 * old.mask + 1 : 255;
        w->seen = xcalloc(w->mask + 1, sizeof *w->seen);
        w->n_seen = 0;
        for (uint64_t i = 0; old.seen && i <= old.mask; i++)
            if (old.seen[i].inode)
                first_visit(w, &(struct stat){.st_dev = old.seen[i].device, .st_ino = old.seen[i].inode});
        xfree(old.seen);
    }
    uint64_t at = ((uint64_t)st->st_ino * 0x9E3779B97F4A7C15u ^ (uint64_t)st->st_dev) & w->mask;
    for (; w->seen[at].inode; at = (at + 1) & w->mask)
        if (w->seen[at].inode == st->st_ino && w->seen[at].device == st->st_dev) return false;
    w->seen[at] = (struct folder_id){.device = st->st_dev, .inode = st->st_ino};
    w->n_seen++;
    return true;
}

static void unreadable(struct walk *w, const char *path, const char *why)
{
    if (w->n_unreadable++ == 0) log_warn("data: %s cannot be read (%s); passed over, and others like it", path, why);
}

static void walk_folder(struct walk *w, const char *folder, int depth)
{
    char **names;
    int n;
    struct err e;
    if (fs_list(folder, &names, &n, &e)) {
        unreadable(w, folder, e.text);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.') continue;
        char *path = fs_join(folder, names[i]);
        struct stat st;
        if (stat(path, &st)) unreadable(w, path, strerror(errno));
        else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX && first_visit(w, &st)) walk_folder(w, path, depth + 1);
        else if (S_ISREG(st.st_mode) && st.st_size > 0) list_put(w->list, path, &st, false);
        xfree(path);
    }
    fs_list_free(names, n);
}

/* Each of the names has to be there. */
static int add_expanded(struct source_list *l, const char *pattern, struct err *e)
{
    char **names;
    int64_t n;
    int code = brace_expand(pattern, &names, &n, e);
    for (int64_t i = 0; i < n && !code; i++)
        code = brace_has(names[i]) ? source_missing(names[i], "No such file or folder", e)
                                   : source_list_add(l, names[i], e);
    brace_free(names, n);
    return code;
}

static void list_put_object(struct source_list *l, const char *url, const struct remote_about *about, bool named)
{
    struct source_object *o = xcalloc(1, sizeof *o);
    *o = (struct source_object){xstrdup(url), *about};
    GROW(l->files, l->n, l->room, 1);
    l->files[l->n++] = (struct source_file){
        .path = remote_shown(url),
        .bytes = about->bytes,
        .changed_ns = (int64_t)remote_version(url, about),
        .object = o,
        .named = named,
    };
    l->bytes += about->bytes;
}

/* What lies below a prefix, as a folder. 1: something; 0: nothing. */
static int add_prefix(struct source_list *l, const char *url, struct err *e)
{
    struct remote_list found;
    int code = remote_list(l->remote, url, &found, e);
    if (code) return code;
    for (int64_t i = 0; i < found.n; i++) list_put_object(l, found.entry[i].url, &found.entry[i].about, false);
    code = found.n > 0;
    remote_list_free(&found);
    return code;
}

/* An object, else what lies below it. */
static int add_address(struct source_list *l, const char *url, struct err *e)
{
    struct remote_about about;
    if (!l->remote) l->remote = remote_new(l->options);
    bool store = str_starts(url, "s3://"), bucket = store && !strchr(url + strlen("s3://"), '/');
    int code = ERR_REQUEST;
    if (!bucket && !(store && str_ends(url, "/"))) {
        code = remote_look(l->remote, url, &about, e);
        if (!code && about.bytes == 0) {
            char *shown = remote_shown(url);
            code = err_set(e, ERR_REQUEST, "%s: is empty; a text was wanted", shown);
            xfree(shown);
            return code;
        }
        if (!code) list_put_object(l, url, &about, true);
        if (code != ERR_REQUEST || !store) return code;
        return add_prefix(l, url, NULL) > 0 ? OK : code; /* the first answer says why */
    }
    code = add_prefix(l, url, e);
    if (code) return code < 0 ? code : OK;
    return err_set(e, ERR_REQUEST,
                   "%s: holds no object to read (empty ones and names with a dot first are passed over)", url);
}

/* Of an address what everybody may see is said, whoever says it. */
static int add_remote(struct source_list *l, const char *path, struct err *e)
{
    int code = brace_has(path) ? add_expanded(l, path, e) : add_address(l, path, e);
    if (!code) return OK;
    char *shown = remote_hidden(e->text);
    code = err_set(e, code, "%s", shown);
    xfree(shown);
    return code;
}

int source_list_add(struct source_list *l, const char *path, struct err *e)
{
    struct stat st;
    if (remote_is(path)) return add_remote(l, path, e);
    if (stat(path, &st) && brace_has(path)) return add_expanded(l, path, e);
    if (stat(path, &st)) return source_missing(path, "No such file or folder", e);
    if (S_ISREG(st.st_mode)) {
        if (st.st_size == 0) return err_set(e, ERR_REQUEST, "%s: is empty; a text was wanted", path);
        list_put(l, path, &st, true);
        return OK;
    }
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_REQUEST, "%s: is neither a file nor a folder", path);
    struct walk w = {.list = l};
    int64_t before = l->n;
    first_visit(&w, &st);
    walk_folder(&w, path, 0);
    xfree(w.seen);
    if (l->n > before) return OK;
    return err_set(e, ERR_REQUEST, "%s: holds no file to read (hidden and empty ones are passed over%s)", path,
                   w.n_unreadable ? "; some could not be read" : "");
}

void source_list_fini(struct source_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (l->files[i].object) xfree(l->files[i].object->url);
        xfree(l->files[i].object);
        xfree(l->files[i].path);
    }
    if (l->remote) remote_say(l->remote);
    remote_free(l->remote);
    xfree(l->files);
    *l = (struct source_list){0};
}
