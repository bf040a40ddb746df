/* cpu.h: the kernels of the cpu family, declared once for cpu_family.c. `x_accepts` looks at shapes, dtypes,
 * attributes and cpu_isa() only. Includes kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_CPU_CPU_H
#define TUTTI_KERNEL_CPU_CPU_H

#include "kernel/kernel.h"

#endif
