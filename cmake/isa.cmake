# SPDX-License-Identifier: Apache-2.0
# Files whose name ends in an instruction set: which processor they are for, and the flags that they alone are compiled with. What
# is for another processor is left out. A third processor needs a table here, rows in kernel/cpu/build.c, kernel/cpu/tile/tile.c and
# comm/fold.c, and a level in kernel/cpuid.h; without them it runs the reference.
set(AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mfma -mavx2 -mf16c)
set(ISA_x86_64 avx2 avx512 avx512bf16 amx)
set(FLAGS_avx2 -mavx2 -mfma -mf16c)
set(FLAGS_avx512 ${AVX512})
set(FLAGS_avx512bf16 ${AVX512} -mavx512bf16)
set(FLAGS_amx ${AVX512} -mavx512bf16 -mamx-tile -mamx-bf16)
# What this processor cannot do, on AVX2: tests/emulate/avx512.h stands before the files; slow, for tests (scripts/test.sh --all).
option(TUTTI_EMULATE "AVX-512, AVX512-BF16 and AMX kernels on a processor that has AVX2 (needs libsimde-dev)" OFF)
if(TUTTI_EMULATE)
  set(EMULATED ${FLAGS_avx2} -O1 -g0 -Wno-psabi -Wno-shadow -include ${CMAKE_SOURCE_DIR}/tests/emulate/avx512.h)
  set(FLAGS_avx512 ${EMULATED})
  set(FLAGS_avx512bf16 ${EMULATED} -DTUTTI_EMULATE_BF16=1)
  set(FLAGS_amx ${EMULATED} -DTUTTI_EMULATE_BF16=1 -DTUTTI_EMULATE_AMX=1)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernel/cpuid.c PROPERTIES COMPILE_DEFINITIONS TUTTI_EMULATE=1)
endif()
set(ISA_aarch64 neon neonbf16)
set(FLAGS_neon) # part of every 64-bit Arm
set(FLAGS_neonbf16 -march=armv8.2-a+bf16)

# Rows of numbers (vec_*) by -O2: their bodies are vectors by hand, and are not slower for it. Short loops over registers are
# unrolled all the same. Others are slower by -O2: a whole step a fifth (products, attention), small blocks in 8 and 4 bits as much.
set(TUTTI_ROWS $<$<CONFIG:RelWithDebInfo>:-O2>)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND TUTTI_ROWS $<$<CONFIG:RelWithDebInfo>:-fpeel-loops>)
endif()

# Which of these levels are built. native: those that this machine runs, by the program's own probe, and at least the first one;
# the program says in --version where it stops. Numbers are those of enum isa (kernel/cpuid.h).
set(TUTTI_ISA all CACHE STRING "instruction sets that kernels are built for: all | native")
set_property(CACHE TUTTI_ISA PROPERTY STRINGS all native)
if(NOT TUTTI_ISA MATCHES "^(all|native)$")
  message(FATAL_ERROR "TUTTI_ISA=${TUTTI_ISA}: all or native")
elseif(TUTTI_ISA STREQUAL "native" AND (CMAKE_CROSSCOMPILING OR TUTTI_EMULATE))
  message(FATAL_ERROR "TUTTI_ISA=native: what is built for another processor, or emulated, is built for all")
endif()
set(TUTTI_ISA_LEVEL 9)
if(TUTTI_ISA STREQUAL "native")
  unset(ENV{TUTTI_ISA}) # a limit for runs is none for builds
  try_run(TUTTI_ISA_HERE compiled ${CMAKE_BINARY_DIR}/isa_here ${CMAKE_SOURCE_DIR}/cmake/isa_here.c
    CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${CMAKE_SOURCE_DIR}/src COMPILE_DEFINITIONS -D_GNU_SOURCE LINK_LIBRARIES Threads::Threads
    COMPILE_OUTPUT_VARIABLE said)
  if(NOT compiled OR NOT TUTTI_ISA_HERE MATCHES "^[0-9]+$")
    message(FATAL_ERROR "TUTTI_ISA=native: what this machine runs was not found out: ${said}")
  endif()
  set(TUTTI_ISA_LEVEL ${TUTTI_ISA_HERE})
  if(TUTTI_ISA_LEVEL LESS 1)
    set(TUTTI_ISA_LEVEL 1)
  endif()
  message(STATUS "kernels: up to level ${TUTTI_ISA_LEVEL} of ${CMAKE_SYSTEM_PROCESSOR}, TUTTI_ISA=native")
endif()

# tutti_isa_files(LIST): sets the flags of the files in the list named LIST and removes those of other processors, and of levels that
# are not built.
function(tutti_isa_files list)
  string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
  if(processor STREQUAL "amd64")
    set(processor x86_64)
  elseif(processor STREQUAL "arm64")
    set(processor aarch64)
  endif()
  set(files ${${list}})
  foreach(other x86_64 aarch64)
    set(level 0)
    foreach(isa ${ISA_${other}})
      math(EXPR level "${level} + 1")
      foreach(f ${files})
        if(NOT f MATCHES "_${isa}\\.c$")
          continue()
        elseif(other STREQUAL processor AND NOT level GREATER TUTTI_ISA_LEVEL)
          set(flags ${FLAGS_${isa}} -ffp-contract=fast)
          if(f MATCHES "/vec_[a-z0-9_]*\\.c$" AND NOT TUTTI_EMULATE)
            list(APPEND flags ${TUTTI_ROWS})
          endif()
          if(f MATCHES "/(vec|formats|quantise)_neon") # gcc 12.2's vectoriser crashes on what is vectors already
            list(APPEND flags -fno-tree-loop-vectorize)
          endif()
          set_source_files_properties(${f} PROPERTIES COMPILE_OPTIONS "${flags}")
        else()
          list(REMOVE_ITEM files ${f})
        endif()
      endforeach()
    endforeach()
  endforeach()
  set(${list} ${files} PARENT_SCOPE)
endfunction()
