/* SPDX-License-Identifier: Apache-2.0 */
/* sanitized.h: how much of a long list of cases a build runs. All of it where nothing watches; a part, spread over the
 * list, under sanitizers, which take 3 (addresses) to 15 times (threads) as long and look for another kind of mistake,
 * and on an emulated processor (TUTTI_EMULATED: cross-compiled), where vectors take 30 times as long. */
#ifndef TUTTI_TESTS_SANITIZED_H
#define TUTTI_TESTS_SANITIZED_H

#ifdef __has_feature /* clang */
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#elif __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#ifndef TUTTI_EMULATED
#define TUTTI_EMULATED 0
#endif

#if defined __SANITIZE_THREAD__ || TUTTI_EMULATED
enum { CASE_STRIDE = 5 };
#elif defined __SANITIZE_ADDRESS__
enum { CASE_STRIDE = 2 };
#else
enum { CASE_STRIDE = 1 };
#endif

enum { SANITIZED = CASE_STRIDE > 1 }; /* watched, or emulated: a path once is enough */

#endif
