/* SPDX-License-Identifier: Apache-2.0 */
/* chat_templates.h: templates by name, with answers marked. Their marks are those of the families they are named after,
 * so a model of that family is asked the way it was trained. Includes: libc only. Order: Local. */
#ifndef TUTTI_DATA_CHAT_TEMPLATES_H
#define TUTTI_DATA_CHAT_TEMPLATES_H

enum { CHAT_MARKS = 4 };
struct chat_template {
    const char *name, *about, *text;
    const char *marks[CHAT_MARKS]; /* the tokens that it is written with, which a tokenizer must have; then NULL */
};
extern const struct chat_template chat_templates[]; /* ends with name NULL */

#endif
