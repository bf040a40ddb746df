/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h: stdout and stderr as the program's commands have them: all that is printed goes through shown_put, so that
 * no command has to think of whose text it prints. What tutti itself tells a terminal (colours, lines drawn over again)
 * and what is data (a model's text into a file) goes past it. Floor 12. Order: Local; one thread.
 */
#ifndef TUTTI_CLI_SCREEN_H
#define TUTTI_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

void screen_open(void);  /* before anything is printed */
void screen_close(void); /* the rest of what was printed is out */
/* To stdout, behind what was printed, as it is; false: it cannot be written. */
bool screen_put_raw(const char *p, size_t n);
/* The same, cleaned where a terminal would see it. */
bool screen_put_data(const char *p, size_t n);

#endif
