# SPDX-License-Identifier: Apache-2.0
# What a program that reads other people's files should be built with, on the interface target tutti_flags: code and data at
# addresses that differ from run to run (PIE), tables of addresses that are read-only before main (full RELRO: relro and now), a
# value on the stack that an overrun destroys (stack protector), sizes known to the compiler checked in calls of libc (FORTIFY: 3
# where compiler and libc know it, else 2; it needs optimization). tests/floors/test_hardened.sh reads the program for all of it.
# Sanitizers bring their own and are left alone.
include(CheckCSourceCompiles)
option(TUTTI_HARDEN "build hardened; off only to measure what that costs" ON)

function(tutti_harden target)
  if(TUTTI_SANITIZE OR TUTTI_FUZZ OR NOT TUTTI_HARDEN)
    return()
  endif()
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3") # libc warns when it makes 2 of it
  check_c_source_compiles("#include <string.h>
    int main(int n, char **v) { char s[8]; strncpy(s, v[0], n & 7); return s[0]; }" TUTTI_FORTIFY_3)
  set(level 2)
  if(TUTTI_FORTIFY_3)
    set(level 3)
  endif()
  target_compile_options(${target} INTERFACE -fPIE -fstack-protector-strong
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${level}>)
  target_link_options(${target} INTERFACE -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endfunction()
