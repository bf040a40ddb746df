/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_tables.h: the tables of filters and tests, asked while parsing, so that an unknown one is refused before
 * anything is rendered. For the files of jinja.h only. */
#ifndef TUTTI_JINJA_JINJA_TABLES_H
#define TUTTI_JINJA_JINJA_TABLES_H

struct jfilter_row;
struct jtest_row;
const struct jfilter_row *jfilter_find(const char *name); /* NULL: there is none */
const struct jtest_row *jtest_find(const char *name);
const char *jfilter_near(const char *name); /* the one that is spelt most like it, or NULL */
const char *jtest_near(const char *name);

#endif
