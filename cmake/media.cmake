# SPDX-License-Identifier: Apache-2.0
# media.cmake: the libraries that decode pictures, sound and video. JPEG's and PNG's are needed; without one of the others its files
# are refused by name (src/media/none/) and `tutti --version` says so. Their headers are found by the one file that names them.
set(MEDIA_LIBRARIES)
set(MEDIA_MODULES) # for tutti.pc
set(MEDIA_WITHOUT) # expressions of files that are not compiled

# tutti_media_library(DECODER NONE MODULE...): src/media/DECODER.c, or src/media/none/NONE.c where a module is not found.
function(tutti_media_library decoder none)
  set(modules ${ARGN})
  if(none)
    pkg_check_modules(${decoder} ${modules})
  else()
    pkg_check_modules(${decoder} REQUIRED ${modules})
  endif()
  if(${decoder}_FOUND)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/media/${decoder}.c PROPERTY INCLUDE_DIRECTORIES ${${decoder}_INCLUDE_DIRS})
    if(decoder STREQUAL video_ffmpeg) # loaded when a video is read: it brings a hundred libraries
      set(MEDIA_LIBRARIES ${MEDIA_LIBRARIES} ${CMAKE_DL_LIBS} PARENT_SCOPE)
    else()
      set(MEDIA_LIBRARIES ${MEDIA_LIBRARIES} ${${decoder}_LINK_LIBRARIES} PARENT_SCOPE)
      set(MEDIA_MODULES ${MEDIA_MODULES} ${modules} PARENT_SCOPE)
    endif()
    set(not_compiled "/media/none/${none}\\.c$")
  else()
    message(STATUS "${decoder}: no library; its files are refused by name")
    set(not_compiled "/media/${decoder}\\.c$")
  endif()
  set(MEDIA_WITHOUT ${MEDIA_WITHOUT} ${not_compiled} PARENT_SCOPE)
endfunction()
tutti_media_library(image_jpeg "" libjpeg)
tutti_media_library(image_png "" libpng)
tutti_media_library(image_webp no_webp libwebp)
tutti_media_library(audio_sndfile no_sndfile sndfile)
tutti_media_library(video_ffmpeg no_ffmpeg libavformat libavcodec libavutil libswscale)

function(tutti_media_files sources)
  set(kept ${${sources}})
  foreach(expression ${MEDIA_WITHOUT})
    list(FILTER kept EXCLUDE REGEX "${expression}")
  endforeach()
  set(${sources} ${kept} PARENT_SCOPE)
endfunction()
