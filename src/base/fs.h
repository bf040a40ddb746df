/* SPDX-License-Identifier: Apache-2.0 */
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
#include <stdio.h>

#include "base/err.h"

/* A file open for reading in places. Reading is by calls into the caller's memory, never through a map: a file that
 * shrinks and a disk that fails are errors that name file, offset, bytes wanted and got, not a SIGBUS. Threads may read
 * one at once. */
struct fs_elsewhere { /* for files that lie on no disk of this host (source/blob_remote.h) */
    int (*read)(void *of, int64_t at, size_t n, void *out, struct err *e); /* bytes that the file has */
    void (*close)(void *of);
};
struct fs_file {
    int fd; /* -1: resting or closed, or elsewhere */
    char *path;
    int64_t bytes; /* when it was opened */
    uint64_t identity[3];
    const struct fs_elsewhere *elsewhere; /* NULL: a file of this host */
    void *of;
};
int fs_file_open(struct fs_file *f, const char *path, struct err *e);
void fs_file_close(struct fs_file *f); /* also one that failed to open, or {.fd = -1} */
int fs_file_read(const struct fs_file *f, int64_t at, size_t n, void *out, struct err *e);
/* Bytes [at, at + n) will be wanted soon: the disk may begin. A hint; those that the file lacks are nothing. */
void fs_file_ahead(const struct fs_file *f, int64_t at, int64_t n);
/* Who holds many files lets some rest: the descriptor is closed, the rest stays. Reopening fails when another file has
 * come under the name meanwhile, or the file was changed. Nothing is done to an open one. */
void fs_file_rest(struct fs_file *f);
int fs_file_reopen(struct fs_file *f, struct err *e);
/* A file to be read from its beginning to its end, of at most `most` bytes: as fs_file_open, so that neither a pipe nor
 * a device in a stranger's folder is waited for or read for ever. fclose it. */
int fs_stream_open(FILE **f, const char *path, int64_t most, struct err *e);
/* Files of lines that a run writes. */
#define FS_LINES_MOST ((int64_t)16 << 30)
/* What a failed call on a path named for reading is: the code and the text for an errno. */
int fs_read_failed(struct err *e, int errno_value, const char *path);

bool fs_exists(const char *path); /* true where it cannot be told (held.h): who reads it then meets the reason */
bool fs_is_dir(const char *path);
int64_t fs_size(const char *path); /* -1: no such file */
/* Where "no" must not be said for "cannot tell": *bytes is the size of what is there, -1 when nothing is.
 *   fails   ERR_IO: the path cannot be looked at (forbidden, a disk or network that fails) */
int fs_look(const char *path, int64_t *bytes, struct err *e);
/* Nothing is there, and that is known. What cannot be looked at is not absent: whoever opens it then learns why. */
bool fs_absent(const char *path);
/* What is there, links followed: one of these, or < 0: it cannot be looked at, as fs_look. */
enum fs_kind { FS_NOTHING, FS_FILE, FS_FOLDER, FS_OTHER };
int fs_what(const char *path, struct err *e);
int fs_mkdirs(const char *path, struct err *e);
int fs_remove_tree(const char *path, struct err *e); /* nothing there: OK; links are not followed */
/* Reads a whole file (NUL appended, not counted); refuses more than limit bytes. xfree(*out). */
int fs_read_all(const char *path, size_t limit, char **out, size_t *n, struct err *e);
/* Writes to a temporary name in the same directory, syncs, renames over path, syncs the directory. */
int fs_write_atomic(const char *path, const void *p, size_t n, struct err *e);
int fs_write_private(const char *path, const void *p, size_t n, struct err *e); /* the same, for its owner's eyes */
/* Removes the temporary files that writers of folder/name left when they were killed. The caller alone names files
 * there. */
int fs_sweep_temporaries(const char *folder, const char *name, struct err *e);
int fs_sync_dir(const char *path, struct err *e);
/* A second name of a file, on the same file system. The directory of `to` is not synced. */
int fs_link(const char *from, const char *to, struct err *e);
int fs_rename(const char *from, const char *to, struct err *e); /* and syncs the directory of `to` */
/* Renames path to the first free of path.aside-1, path.aside-2, ...; xfree *to. The caller alone names files there. */
int fs_set_aside(const char *path, char **to, struct err *e);
/* Sorted names in a directory ("." and ".." left out); xfree each and the array. */
int fs_list(const char *path, char ***names, int *n, struct err *e);
void fs_list_free(char **names, int n);
/* dir + "/" + name into a new string; xfree it. */
char *fs_join(const char *dir, const char *name);

/* Advisory lock: one holder per path (two threads of one process exclude each other too); a holder that dies
 * lets go. Fails with ERR_REQUEST naming the holder's pid. */
struct fs_lock {
    int fd;
    bool busy; /* taking failed because another holds it, and for no other reason */
};
int fs_lock_take(struct fs_lock *l, const char *path, struct err *e);
void fs_lock_release(struct fs_lock *l); /* the file stays */
/* And the file goes, by its holder alone: whoever had it open meanwhile takes the next file of that name. */
void fs_lock_remove(struct fs_lock *l, const char *path);

/* A buffered writer for big files that knows how much it wrote and turns a full disk into an error. Failure is
 * sticky: once a write failed, every later call returns the same error. */
struct fs_writer;
int fs_writer_open(struct fs_writer **w, const char *path, struct err *e);
int fs_writer_private(struct fs_writer *w, struct err *e); /* before anything is written: for its owner's eyes */
/* Goes on with a file behind its first `offset` bytes, which it must have; what was there after them is gone. */
int fs_writer_go_on(struct fs_writer **w, const char *path, int64_t offset, struct err *e);
int fs_writer_write(struct fs_writer *w, const void *p, size_t n, struct err *e);
int64_t fs_writer_offset(const struct fs_writer *w);
int fs_writer_close(struct fs_writer *w, bool sync, struct err *e); /* frees w even on failure */
int fs_writer_flush(struct fs_writer *w, struct err *e);            /* hands all to the system; does not sync */
/* For tests: the n-th write(2) from the opening on fails as on a full disk; 0 is off. */
void fs_writer_fail_at(struct fs_writer *w, int64_t n);

#endif
