/* SPDX-License-Identifier: Apache-2.0 */
/* room_main.h: stands before every test that is one of its room's program (CMakeLists.txt). The test has a main() like
 * any program; here it becomes a function of the test's own name, which the program's table (room_main.c) has. */
#ifndef TUTTI_TESTS_ROOM_MAIN_H
#define TUTTI_TESTS_ROOM_MAIN_H

#define ROOM_JOIN_(a, b) a##b
#define ROOM_JOIN(a, b) ROOM_JOIN_(a, b)
#define ROOM_MAIN ROOM_JOIN(main_of_, TEST_NAME)
/* Declared first, so that a function of several files is never one by accident (-Wmissing-prototypes). */
#define main(...)                                                                                                      \
    ROOM_MAIN(__VA_ARGS__);                                                                                            \
    int ROOM_MAIN(__VA_ARGS__)

#endif
