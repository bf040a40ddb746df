/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h: the cpu device for those that are made of it (late.c, open.c). Private to device/. Order: Local. */
#ifndef TUTTI_DEVICE_INSIDE_H
#define TUTTI_DEVICE_INSIDE_H

#include "device/device.h"

extern const struct device_ops cpu_ops;
int cpu_new(struct device **d, int n_threads, bool untouchable, struct err *e);
bool cpu_owns(const struct device *d, const void *p);

#endif
