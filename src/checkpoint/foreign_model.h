/* SPDX-License-Identifier: Apache-2.0 */
/* foreign_model.h: what a path is that was named as a model and is none, and what to do. For weights.c and hf_read.c.
 * Includes: base. Order: Local. */
#ifndef TUTTI_CHECKPOINT_FOREIGN_MODEL_H
#define TUTTI_CHECKPOINT_FOREIGN_MODEL_H

#include <stdbool.h>

#include "base/err.h"

/* Where the path is known to be something else (a name of the hub, a file, a folder of another format or of several
 * models), *e says what, with the command that mends it, and true is returned; else *e stays. Nothing is downloaded. */
bool foreign_model(const char *path, struct err *e);
/* The same for a folder whose config.json is there and whose *.safetensors are not. */
bool foreign_model_weights(const char *dir, struct err *e);

#endif
