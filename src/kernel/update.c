/* SPDX-License-Identifier: Apache-2.0 */
/* The table of elementwise updates: what each reads and writes, for the door to the device's bytes (entry.c). */
#include "kernel/update.h"

/* clang-format off */
const struct update_row update_rows[UPDATE_KINDS] = {
    [UPDATE_LION] = {"lion", 4, {{"master", true, UPDATE_EACH}, {"first moment", true, UPDATE_EACH}, {"gradient", false, UPDATE_EACH}, {"parameter", true, UPDATE_EACH}}, LION_PARAM},
    [UPDATE_MOMENTUM] = {"momentum", 3, {{"momentum", true, UPDATE_EACH}, {"gradient", false, UPDATE_EACH}, {"what is stepped along", true, UPDATE_EACH}}, -1},
    [UPDATE_UNIT] = {"scale to a unit", 3, {{"to", true, UPDATE_EACH}, {"from", false, UPDATE_EACH}, {"sum of squares", false, UPDATE_ONE}}, -1},
    [UPDATE_BLEND] = {"blend", 3, {{"to", true, UPDATE_EACH}, {"first", false, UPDATE_EACH}, {"second", false, UPDATE_EACH}}, -1},
    [UPDATE_ADAMW16] = {"adamw", 5, {{"master", true, UPDATE_EACH}, {"first moment", true, UPDATE_EACH}, {"second moment", true, UPDATE_EACH}, {"gradient", false, UPDATE_EACH}, {"parameter", true, UPDATE_EACH}}, ADAMW16_PARAM},
    [UPDATE_AVERAGE] = {"average", 2, {{"average", true, UPDATE_EACH}, {"of", false, UPDATE_EACH}}, -1},
    [UPDATE_ROUND] = {"round by chance", 2, {{"to", true, UPDATE_EACH}, {"from", false, UPDATE_EACH}}, -1},
    [UPDATE_ADAMW8] = {"adamw", 7, {{"master", true, UPDATE_EACH}, {"first moment", true, UPDATE_EACH}, {"second moment", true, UPDATE_EACH}, {"scale of the first", true, UPDATE_BLOCK}, {"scale of the second", true, UPDATE_BLOCK}, {"gradient", false, UPDATE_EACH}, {"parameter", true, UPDATE_EACH}}, ADAMW8_PARAM},
    [UPDATE_FACTOR_SUMS] = {"sums of a matrix", 3, {{"of rows", true, UPDATE_ROW}, {"of columns", true, UPDATE_COL}, {"gradient", false, UPDATE_EACH}}, -1},
    [UPDATE_FACTOR_KEEP] = {"factors", 2, {{"factors", true, UPDATE_EACH}, {"sums", false, UPDATE_EACH}}, -1},
    [UPDATE_FACTOR_MEAN] = {"mean of factors", 2, {{"mean", true, UPDATE_ONE}, {"rows", false, UPDATE_EACH}}, -1},
    [UPDATE_FACTOR_SIZE] = {"size of a step", 7, {{"sums", true, UPDATE_TWO}, {"of rows", true, UPDATE_ROW_PAIR}, {"row factors", false, UPDATE_ROW}, {"column factors", false, UPDATE_COL}, {"mean", false, UPDATE_ONE}, {"gradient", false, UPDATE_EACH}, {"master", false, UPDATE_EACH}}, -1},
    [UPDATE_FACTOR_APPLY] = {"adafactor", 7, {{"master", true, UPDATE_EACH}, {"row factors", false, UPDATE_ROW}, {"column factors", false, UPDATE_COL}, {"mean", false, UPDATE_ONE}, {"sums", false, UPDATE_TWO}, {"gradient", false, UPDATE_EACH}, {"parameter", true, UPDATE_EACH}}, FACTOR_APPLY_PARAM},
    [UPDATE_APPLY] = {"apply an update", 3, {{"master", true, UPDATE_EACH}, {"update", false, UPDATE_EACH}, {"parameter", true, UPDATE_EACH}}, APPLY_PARAM},
};
/* clang-format on */
