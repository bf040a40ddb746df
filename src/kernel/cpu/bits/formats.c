/* SPDX-License-Identifier: Apache-2.0 */
/* format_ops_cpu: conversions at the widest vectors this CPU has, chosen at each call. Where there is no build for the
 * CPU the reference does the work. */
#include "kernel/cpu/build.h"

static const struct format_ops *chosen(void)
{
    const struct cpu_build *b = cpu_build();
    return b ? b->formats : &format_ops_ref;
}

static void encode_cpu(struct team *team, void *codes, enum format f, const void *x, enum dtype from, int64_t n,
                       bool saturate, const struct format_random *random)
{
    chosen()->encode(team, codes, f, x, from, n, saturate, random);
}
static void decode_cpu(struct team *team, void *x, enum dtype to, const void *codes, enum format f, int64_t n)
{
    chosen()->decode(team, x, to, codes, f, n);
}

static void encode_rows_cpu(struct team *team, const struct codec_args *a) { chosen()->encode_rows(team, a); }
static void decode_rows_cpu(struct team *team, const struct codec_args *a) { chosen()->decode_rows(team, a); }

static void unpack_cpu(struct team *team, const struct packed_args *a) { chosen()->unpack(team, a); }

const struct format_ops format_ops_cpu = {"cpu", encode_cpu, decode_cpu, encode_rows_cpu, decode_rows_cpu, unpack_cpu};
