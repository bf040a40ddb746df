/* SPDX-License-Identifier: Apache-2.0 */
/* bad_list.h: the records that were skipped, as a file of one line each (file, line or offset, reason), the first few
 * of them on the screen too.
 *
 * The list that was there stays until bad_list_end, when what there is takes its place: the list of what was made last,
 * whole. The file is made when there is something to write. Includes: base. Order: Local; one thread at a time adds.
 */
#ifndef TUTTI_SOURCE_BAD_LIST_H
#define TUTTI_SOURCE_BAD_LIST_H

#include <stdint.h>

#include "base/err.h"

enum { BAD_LIST_SHOWN = 5 };

struct fs_writer;
struct bad_list {
    char *path, *temporary;
    struct fs_writer *file; /* NULL: nothing was added */
    int64_t n;
    struct err error; /* the first, which bad_list_end returns */
};
/* The list is made_from_it.skipped: beside the file that the other records make. */
void bad_list_init(struct bad_list *l, const char *made_from_it);
void bad_list_fini(struct bad_list *l);
/* Removes what was killed while it wrote one, and begins anew. */
void bad_list_clear(struct bad_list *l);
/* For source_options.tell_bad, with the list as its context. */
void bad_list_add(void *list, const char *what);
/* Puts the list in its place, or none where nothing is bad, and says how many there are and where. e NULL: what was to
 * be made was not; the list that was there stays. ERR_IO: it could not be written. */
int bad_list_end(struct bad_list *l, struct err *e);

#endif
