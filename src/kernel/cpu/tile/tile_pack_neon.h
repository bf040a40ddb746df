/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/cpu/tile/tile_plain.h"
#define pack_neon(dst, s, lanes, depth, to, width, step) plain_pack(dst, s, lanes, depth, to, width, step, step)
#define finish_neon plain_finish
#define add_rows_neon plain_add_rows
