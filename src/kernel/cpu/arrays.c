/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over whole arrays at the widest vectors that this CPU has (vec/flat.c, bits/formats.c), as slots of the
 * family. */
#include "kernel/cpu/cpu.h"

#define FLAT flat_ops_cpu
#define FORMATS format_ops_cpu
#define SLOT(name) array_##name##_cpu
#include "kernel/array_slots_body.h"
