/* SPDX-License-Identifier: Apache-2.0 */
/* address.h: what is an address (SCHEME://...) and no path, whoever can read it. A path of that form would be a folder
 * called "SCHEME:" below the current one, which nobody means: the functions of fs.h that make folders and files refuse
 * it, so no address ends up as one, whichever key or option it was given to. Schemes are written in small letters here.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_ADDRESS_H
#define TUTTI_BASE_ADDRESS_H

#include <stdbool.h>

#include "base/err.h"

/* A scheme as RFC 3986 has it, in letters of any case, and "://". */
bool address_is(const char *path);
/* ERR_REQUEST where path is an address: what is wrong and what is wanted instead ("a folder of this host"). OK else. */
int address_refuse(const char *path, const char *wanted, struct err *e);

#endif
