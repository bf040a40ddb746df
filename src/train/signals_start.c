/* SPDX-License-Identifier: Apache-2.0 */
/* A function in .preinit_array, which the loader runs before the constructors of shared libraries. */
#include "train/signals_start.h"

#include <signal.h>
#include <stdint.h>

static uint64_t ignored; /* bit 1 << number */

static void look(void)
{
    struct sigaction now;
    for (int number = 1; number < 32; number++)
        if (!sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN) ignored |= (uint64_t)1 << number;
}

#ifdef __ELF__
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = look;
#else
__attribute__((constructor)) static void first(void) { look(); }
#endif

bool signals_start_ignored(int number) { return number > 0 && number < 32 && (ignored >> number & 1); }
