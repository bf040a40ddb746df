/* SPDX-License-Identifier: Apache-2.0 */
/* The table of elementwise updates: what each reads and writes, for the door to the device's bytes (entry.c). */
#include "kernel/update.h"

/* clang-format off */
const struct update_row update_rows[UPDATE_KINDS] = {
    [UPDATE_LION] = {"lion", 4, {{"master", true, false}, {"first moment", true, false}, {"gradient", false, false}, {"parameter", true, false}}, LION_PARAM},
    [UPDATE_MOMENTUM] = {"momentum", 3, {{"momentum", true, false}, {"gradient", false, false}, {"what is stepped along", true, false}}, -1},
    [UPDATE_UNIT] = {"scale to a unit", 3, {{"to", true, false}, {"from", false, false}, {"sum of squares", false, true}}, -1},
    [UPDATE_BLEND] = {"blend", 3, {{"to", true, false}, {"first", false, false}, {"second", false, false}}, -1},
    [UPDATE_ADAMW16] = {"adamw", 5, {{"master", true, false}, {"first moment", true, false}, {"second moment", true, false}, {"gradient", false, false}, {"parameter", true, false}}, ADAMW16_PARAM},
    [UPDATE_APPLY] = {"apply an update", 3, {{"master", true, false}, {"update", false, false}, {"parameter", true, false}}, APPLY_PARAM},
};
/* clang-format on */
