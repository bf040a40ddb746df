# SPDX-License-Identifier: Apache-2.0
# tutti.pc: what a program that is linked with tutti's library needs. The library is static, so what it needs itself is
# in Libs and Requires, not in their private halves.
set(PC_REQUIRES)
foreach(found YAML JANSSON ONIG XXHASH ZLIB ZSTD CURL CRYPTO UTF8PROC SNAPPY ARCHIVE DIVSUFSORT)
  if(${found}_FOUND)
    string(APPEND PC_REQUIRES " ${${found}_MODULE_NAME}")
  endif()
endforeach()
# Found from where the file lies, so that the folder it is installed in may be moved.
file(RELATIVE_PATH PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(PC_LIBS "-L\${libdir} -ltutti_core")
if(DNNL_LIB AND DNNL_INCLUDE)
  string(APPEND PC_LIBS " -ldnnl")
endif()
if(MPI_chosen)
  get_target_property(PC_MPI mpi_chosen INTERFACE_LINK_LIBRARIES)
  string(REPLACE ";" " " PC_MPI "${PC_MPI}")
  string(APPEND PC_LIBS " ${PC_MPI}")
endif()
string(APPEND PC_LIBS " -lpthread -lm")
configure_file(${CMAKE_SOURCE_DIR}/cmake/tutti.pc.in ${CMAKE_BINARY_DIR}/tutti.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
