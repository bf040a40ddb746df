/* SPDX-License-Identifier: Apache-2.0 */
/* page.h: the report of a run as one HTML file that needs nothing beside it: no network, no script, no font.
 * Every text that comes from a run is escaped. What is not known is left out, never guessed.
 * Floor 11; includes base and the room. Order: Local.
 */
#ifndef TUTTI_REPORT_PAGE_H
#define TUTTI_REPORT_PAGE_H

#include "base/str.h"
#include "report/history.h"

struct page_memory { /* a row of the table of memory */
    const char *name;
    double bytes;
};
struct page_picture {
    const char *title, *about; /* about: a sentence below the title */
    const char *svg;           /* the picture; NULL: left out */
};
enum { PAGE_ROWS = 16, PAGE_PICTURES = 4 };

struct page {
    const char *title; /* the run's directory */
    const char *model; /* "llama, 3.9M parameters, 6 layers"; NULL: left out */
    const struct history *history;
    const char *config;                   /* config.yaml as it is; NULL: left out */
    struct page_memory memory[PAGE_ROWS]; /* of the rank that needs most, at its peak */
    int n_memory;
    struct page_picture picture[PAGE_PICTURES];
    int n_pictures;
    const char *notes[8]; /* what could not be shown, and why */
    int n_notes;
};

void page_html(const struct page *p, struct str *out);
void page_escape(struct str *out, const char *text); /* & < > and quotes */

#endif
