/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.h: names of code addresses, by elfutils (libdw), and the stacks of another process of this machine.
 *
 * Names are read from the program's own symbols and debug information; nothing is fetched from elsewhere. A stripped
 * program gives the file and the offset in it, which addr2line takes.
 * Includes: base only. Order: Local; one thread at a time per `struct symbols`.
 */
#ifndef TUTTI_BASE_SYMBOLS_H
#define TUTTI_BASE_SYMBOLS_H

#include "base/stacks.h"
#include "base/str.h"

struct symbols;
/* What is mapped into the process now. NULL: it cannot be read; then addresses have no names. */
struct symbols *symbols_open(pid_t pid);
void symbols_close(struct symbols *s);
/* Appends "comm_wait (src/comm/comm.c:301)", or "libc.so.6+0x1234". `returns`: a return address, which is behind its
 * call. */
void symbols_name(struct symbols *s, void *address, bool returns, struct str *out);
/* The name alone: "comm_wait"; NULL: none is known. Valid until symbols_close. */
const char *symbols_function(struct symbols *s, void *address, bool returns);
/* Fills the addresses of s's process's threads in list, which stacks_look has made, by tracing each for a moment; a
 * stopped process stays stopped. ERR_IO: the system does not allow it. */
int symbols_trace(struct symbols *s, struct stack *list, int n, struct err *e);

#endif
