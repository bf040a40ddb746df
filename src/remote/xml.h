/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h: the XML in which stores answer, piece by piece: <NAME>, text, </NAME>. Declarations, comments and attributes
 * are passed over; the characters of `&amp;` and its like are given. No document types: what begins one is an end.
 * Includes: base. Order: Local. */
#ifndef TUTTI_REMOTE_XML_H
#define TUTTI_REMOTE_XML_H

#include <stdbool.h>

#include "base/str.h"

enum xml_kind { XML_OPEN, XML_TEXT, XML_CLOSE };
enum { XML_NAME = 64 };
/* Begin with {p, end}. */
struct xml {
    const char *p, *end;
    enum xml_kind kind;
    char name[XML_NAME]; /* of the tag; of a text the tag that opened just before it, else ""; cut when longer */
    const char *text;    /* of XML_TEXT, as it stands */
    size_t n;
    bool bad;   /* it is no XML, or was cut short inside a tag */
    bool empty; /* <NAME/>: its XML_CLOSE comes next */
};
bool xml_next(struct xml *x);                        /* false: the end, or bad */
void xml_text(const struct xml *x, struct str *out); /* out is cleared first */

#endif
