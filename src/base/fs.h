/* fs.h: files. Every function returns OK or a negative code with *e filled (path, reason, remedy).
 * What is wrong with a path named for reading (missing, a directory, forbidden) is ERR_REQUEST; what a disk does
 * later is ERR_IO.
 * Order: Local.
 */
#ifndef TUTTI_BASE_FS_H
#define TUTTI_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A read-only map of a whole file; empty files give p = NULL, bytes = 0. */
struct fs_map {
    const unsigned char *p;
    size_t bytes;
};
int fs_map_open(struct fs_map *m, const char *path, struct err *e);
void fs_map_close(struct fs_map *m);

bool fs_exists(const char *path);
bool fs_is_dir(const char *path);
int64_t fs_size(const char *path); /* -1: no such file */
int fs_mkdirs(const char *path, struct err *e);
int fs_remove_tree(const char *path, struct err *e); /* nothing there: OK; links are not followed */
/* Reads a whole file (NUL appended, not counted); refuses more than limit bytes. xfree(*out). */
int fs_read_all(const char *path, size_t limit, char **out, size_t *n, struct err *e);
/* Writes to a temporary name in the same directory, syncs, renames over path, syncs the directory. */
int fs_write_atomic(const char *path, const void *p, size_t n, struct err *e);
int fs_sync_dir(const char *path, struct err *e);
int fs_rename(const char *from, const char *to, struct err *e); /* and syncs the directory of `to` */
/* Sorted names in a directory ("." and ".." left out); xfree each and the array. */
int fs_list(const char *path, char ***names, int *n, struct err *e);
void fs_list_free(char **names, int n);
/* dir + "/" + name into a new string; xfree it. */
char *fs_join(const char *dir, const char *name);

/* Advisory lock: one holder per path (two threads of one process exclude each other too); a holder that dies
 * lets go. The file itself stays. Fails with ERR_REQUEST naming the holder's pid. */
struct fs_lock {
    int fd;
};
int fs_lock_take(struct fs_lock *l, const char *path, struct err *e);
void fs_lock_release(struct fs_lock *l);

/* A buffered writer for big files that knows how much it wrote and turns a full disk into an error. Failure is
 * sticky: once a write failed, every later call returns the same error. */
struct fs_writer;
int fs_writer_open(struct fs_writer **w, const char *path, struct err *e);
int fs_writer_write(struct fs_writer *w, const void *p, size_t n, struct err *e);
int64_t fs_writer_offset(const struct fs_writer *w);
int fs_writer_close(struct fs_writer *w, bool sync, struct err *e); /* frees w even on failure */
/* For tests: the n-th write(2) from the opening on fails as on a full disk; 0 is off. */
void fs_writer_fail_at(struct fs_writer *w, int64_t n);

#endif
