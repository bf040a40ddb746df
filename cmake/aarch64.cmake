# SPDX-License-Identifier: Apache-2.0
# Toolchain file: builds for 64-bit Arm Linux on another processor.
#
#   cmake -S . -B build-arm --toolchain cmake/aarch64.cmake -DTUTTI_SYSROOT=FOLDER
#
# FOLDER holds the Arm system's libraries and headers (scripts/arm.sh makes one of Debian's packages); without it they are looked
# for where Debian puts them next to its own (dpkg --add-architecture arm64). Tests run through qemu-user where it is found.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(TRIPLE aarch64-linux-gnu)
find_program(CMAKE_C_COMPILER NAMES ${TRIPLE}-gcc REQUIRED)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_SYSROOT)
set(TUTTI_SYSROOT "" CACHE PATH "root of the Arm system's files")
set(TUTTI_MPI off CACHE STRING "MPI's compiler wrappers are this machine's") # ranks are threads
set(ENV{PKG_CONFIG_LIBDIR} ${TUTTI_SYSROOT}/usr/lib/${TRIPLE}/pkgconfig:${TUTTI_SYSROOT}/usr/share/pkgconfig)
if(TUTTI_SYSROOT)
  set(CMAKE_SYSROOT ${TUTTI_SYSROOT})
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TUTTI_SYSROOT})
endif()
set(CMAKE_LIBRARY_ARCHITECTURE ${TRIPLE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# `max`: every instruction set that qemu knows, bf16 among them.
find_program(QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU};-cpu;max;-L;${TUTTI_SYSROOT}/)
endif()
