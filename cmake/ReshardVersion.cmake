# SPDX-License-Identifier: Apache-2.0
# RESHARD_VERSION from the macros in base.h, which are the only place that states it, and
# RESHARD_SOVERSION: before 1.0 a minor version may break binary compatibility, so it is part of it.
set(header "${CMAKE_CURRENT_LIST_DIR}/../include/reshard/base.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
file(STRINGS "${header}" lines REGEX "^#define RESHARD_VERSION_(MAJOR|MINOR|PATCH) ")
set(RESHARD_VERSION "")
foreach(part MAJOR MINOR PATCH)
    if(NOT "${lines}" MATCHES "RESHARD_VERSION_${part} ([0-9]+)")
        message(FATAL_ERROR "${header} does not define RESHARD_VERSION_${part}")
    endif()
    list(APPEND RESHARD_VERSION ${CMAKE_MATCH_1})
endforeach()
list(GET RESHARD_VERSION 0 RESHARD_SOVERSION)
if(RESHARD_SOVERSION EQUAL 0)
    list(GET RESHARD_VERSION 1 minor)
    string(APPEND RESHARD_SOVERSION ".${minor}")
endif()
list(JOIN RESHARD_VERSION "." RESHARD_VERSION)
