# SPDX-License-Identifier: Apache-2.0
# Instructions executed between calls of count_mark, one number per pair, from qemu-user's log (-d in_asm,exec,nochain): what it
# translates is listed once, block by block, and every execution of a block is a line with the block's address.
/^0x/ {
    if (fresh) {
        at = substr($1, 3, length($1) - 3)
        at = substr("0000000000000000" at, length(at) + 1)
        size[at] = 0
        fresh = 0
    }
    size[at]++
    next
}
/^IN:/ { fresh = 1; next }
/^Trace/ {
    if ($5 != "count_mark") {
        if (inside) n += size[substr($4, 19, 16)]
    } else if (inside) {
        print n
        inside = 0
    } else {
        inside = 1
        n = 0
    }
}
