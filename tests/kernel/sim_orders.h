/* SPDX-License-Identifier: Apache-2.0 */
/* sim_orders.h: the orders in which a test has a simulated block's threads go on (kernel/cuda/sim_run.h); where no GPU
 * is simulated nobody asks. */
#ifndef TUTTI_TESTS_KERNEL_SIM_ORDERS_H
#define TUTTI_TESTS_KERNEL_SIM_ORDERS_H

#include <stdlib.h>

static const char *const sim_orders[] = {"forward", "backward", "random:3", "greedy:5", "greedy:9"};
enum { SIM_ORDERS = sizeof sim_orders / sizeof *sim_orders };
static inline void sim_order_ask(int i) { setenv("TUTTI_SIM_ORDER", sim_orders[i], 1); }

#endif
