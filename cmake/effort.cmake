# SPDX-License-Identifier: Apache-2.0
# How hard the compiler tries, per room, in the usual build (RelWithDebInfo, which is -O3 by itself). Files of an instruction set have
# flags of their own (isa.cmake).
#
#   decides   what is done a few times a step or a run: parsing, planning, printing, files. -O1 takes a third less than -O3.
#   kernel/, comm/   numbers: -O3
#   others    what is done per byte, token or row of a table: -O2
set(TUTTI_DECIDES cli benchmark explain config decode keep learn watch site train plan report verify serve http remote schedule engine model nn jinja)

# tutti_effort(LIST): for the files in the list named LIST.
function(tutti_effort list)
  string(REPLACE ";" "|" decides "${TUTTI_DECIDES}")
  foreach(f ${${list}})
    if(f MATCHES "/src/(${decides})/")
      set(level -O1)
    elseif(f MATCHES "/src/(kernel|comm)/")
      continue()
    else()
      set(level -O2)
    endif()
    get_source_file_property(own ${f} COMPILE_OPTIONS)
    if(NOT own)
      set(own)
    endif()
    list(PREPEND own $<$<CONFIG:RelWithDebInfo>:${level}>)
    set_source_files_properties(${f} PROPERTIES COMPILE_OPTIONS "${own}")
  endforeach()
endfunction()
