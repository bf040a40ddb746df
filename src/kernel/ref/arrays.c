/* SPDX-License-Identifier: Apache-2.0 */
/* The plain loops over whole arrays, as slots of the family. */
#include "kernel/ref/ref.h"

#define FLAT flat_ops_ref
#define FORMATS format_ops_ref
#define SLOT(name) array_##name##_ref
#include "kernel/array_slots_body.h"
