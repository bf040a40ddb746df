# SPDX-License-Identifier: Apache-2.0
# What a test says of itself in its first lines, as comments of their own:
#
#   suite: KEY [WORD ...]
#
#   wraps FUNCTION ...   it stands between the program and these: the linker calls __wrap_<function> there
#   alone                a program of its own: it has functions of the C library's names, which would stand before all of its room's tests
#                        (floors/test_rooms.sh looks)
#   links LIBRARY ...    it is linked with these as well: <library>_LIBRARIES of cmake/
#   devices NAME ...     it runs again on these: untouchable (untouchable/<room>/<name>: the host cannot touch its bytes; the quick ones that
#                        reach most), late (late/<room>/<name>: it cannot either, is late on purpose, and checks the order of what touches its
#                        bytes) running (the same, but it runs by itself, as a GPU does: for ThreadSanitizer, too) or bare
#                        (untouchable, without kernels of its own: every row is carried to the host)
#   touches              it gives host memory to kernels, since it is about these: never on a device that cannot be touched
#   waits                it waits more than it computes: many at once
#   measures             it is about what is measured when a run starts; others are told (measuring was more than half of a short run)
#   threads              ThreadSanitizer, though its room is not one of those that use threads
#   long WORD ...        only with scripts/test.sh --all where a sanitizer watches, which takes minutes for it: threads (ThreadSanitizer learns
#                        nothing more from it: its threads are watched in others of its room), addresses (shorter ones walk the same memory),
#                        sanitizers (either: it compares the numbers of more layouts), late, running and bare (its copies on these devices)
#   whole NAME ...       its copy on these devices runs only with scripts/test.sh --all
#   unwatched WORD       no sanitizer (sanitizers: what documents say is the program's output without another path in it, rates are the normal
#                        build's, a model becomes right in as long as it takes), or not that of threads (threads: one rank, one thread, or
#                        the trainer's threads again)
#
# A name that begins with test_long_ is long everywhere. What is said wrongly stops cmake.
set(SUITE_KEYS wraps alone links devices touches waits measures threads long whole unwatched)
set(SUITE_devices_WORDS untouchable late running bare)
set(SUITE_long_WORDS threads addresses sanitizers late running bare)
set(SUITE_whole_WORDS untouchable late running bare)
set(SUITE_unwatched_WORDS threads sanitizers)

# Sets SUITE_<key> for each: its words, ON where it has none, empty where it is not said.
function(tutti_suite file)
  file(STRINGS ${file} lines REGEX "^(/\\* |# )suite: ")
  foreach(key ${SUITE_KEYS})
    set(${key} "")
  endforeach()
  foreach(line ${lines})
    string(REGEX REPLACE "^.*suite: *" "" line "${line}")
    string(REGEX REPLACE " *\\*/$" "" line "${line}")
    separate_arguments(words UNIX_COMMAND "${line}")
    list(POP_FRONT words key)
    if(NOT key IN_LIST SUITE_KEYS)
      message(FATAL_ERROR "${file}: suite: '${key}' is none of ${SUITE_KEYS}")
    endif()
    foreach(word ${words})
      if(DEFINED SUITE_${key}_WORDS AND NOT word IN_LIST SUITE_${key}_WORDS)
        message(FATAL_ERROR "${file}: suite: ${key}: '${word}' is none of ${SUITE_${key}_WORDS}")
      endif()
    endforeach()
    if(NOT words)
      set(words ON)
    endif()
    list(APPEND ${key} ${words})
  endforeach()
  foreach(key ${SUITE_KEYS})
    set(SUITE_${key} "${${key}}" PARENT_SCOPE)
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endfunction()

# Whether this build is one that the test is long in, or is left out of.
function(tutti_suite_watched out)
  set(${out} ON PARENT_SCOPE)
  if((TUTTI_SANITIZE AND "sanitizers" IN_LIST SUITE_unwatched) OR (TUTTI_SANITIZE MATCHES "thread" AND "threads" IN_LIST SUITE_unwatched))
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()
function(tutti_suite_long out device)
  set(${out} OFF PARENT_SCOPE)
  if((TUTTI_SANITIZE AND "sanitizers" IN_LIST SUITE_long) OR (TUTTI_SANITIZE MATCHES "thread" AND "threads" IN_LIST SUITE_long) OR
     (TUTTI_SANITIZE MATCHES "address" AND "addresses" IN_LIST SUITE_long) OR
     (TUTTI_SANITIZE AND device AND device IN_LIST SUITE_long))
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()
