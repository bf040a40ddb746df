# SPDX-License-Identifier: Apache-2.0
# Kernels of a GPU (src/kernel/cuda/*.cu), compiled for the processor with a simulator under them (sim.cpp): by the C compiler's own
# driver as C++, to objects of the library. CMake's language CXX is not enabled: every program would be linked by the C++ compiler and
# need its library; kernels need neither that nor exceptions.
execute_process(COMMAND ${CMAKE_C_COMPILER} -x c++ -std=c++17 -fsyntax-only -
  INPUT_FILE /dev/null RESULT_VARIABLE no_cxx OUTPUT_QUIET ERROR_QUIET)
option(TUTTI_SIMULATE "a GPU's kernels, simulated (run.device: cuda-sim), where there is a C++ compiler" ON)
set(TUTTI_SIMULATES OFF)
if(NOT TUTTI_SIMULATE)
  message(STATUS "a GPU's kernels are not simulated: TUTTI_SIMULATE=OFF")
elseif(no_cxx)
  message(STATUS "C++: not found; a GPU's kernels cannot be simulated")
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|aarch64|arm64)$")
  message(STATUS "a GPU's kernels are simulated on x86-64 and aarch64, not on ${CMAKE_SYSTEM_PROCESSOR}")
else()
  set(TUTTI_SIMULATES ON)
endif()

# tutti_simulated(LIST FILES...): compiles FILES and adds their objects to the list named LIST.
function(tutti_simulated list)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(given UNIX_COMMAND "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}}")
  set(flags -x c++ -std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics -fPIE -I${CMAKE_SOURCE_DIR}/src -D_GNU_SOURCE
    -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow)
  if(TUTTI_WERROR)
    list(APPEND flags -Werror)
  endif()
  if(TUTTI_SANITIZE)
    list(APPEND flags -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/simulated)
  file(MAKE_DIRECTORY ${folder})
  set(objects)
  foreach(f ${ARGN})
    get_filename_component(name ${f} NAME)
    set(object ${folder}/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${f} DEPFILE ${object}.d
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${CMAKE_C_COMPILER} ${given} -O2 ${flags} -MD -MF ${object}.d -MT ${object} -c ${f} -o ${object}
      COMMENT "Compiling ${name}, to be simulated" VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${list} ${${list}} ${objects} PARENT_SCOPE)
endfunction()
