/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: seconds. Order: Local. */
#ifndef TUTTI_BASE_CLOCK_H
#define TUTTI_BASE_CLOCK_H
double clock_now_s(void);    /* monotonic */
double clock_wall_s(void);   /* since 1970 */
double clock_thread_s(void); /* that this thread has been computing */
void clock_sleep_s(double s);
#endif
