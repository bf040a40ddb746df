/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h: what a path is that was named as a checkpoint of tutti and is another program's. Includes: base. Order:
 * Local. */
#ifndef TUTTI_CHECKPOINT_FOREIGN_H
#define TUTTI_CHECKPOINT_FOREIGN_H

#include "base/err.h"

/* ERR_REQUEST that says what it is, where that is known, and what is to be done with it. Only names are looked at. */
int foreign_refuse(const char *path, struct err *e);

#endif
