# SPDX-License-Identifier: Apache-2.0
# Finds zlib, for the CRCs and deflated members of zip files in src/checkpoint/archive. It is linked
# statically and stays out of sight: what we build needs no libz at run time, and no other library in
# a process that has its own sees ours. Who links the installed libreshard.a adds -lz.
find_path(RESHARD_ZLIB_INCLUDE zlib.h)
find_library(RESHARD_ZLIB_LIBRARY NAMES libz.a)
if(NOT RESHARD_ZLIB_INCLUDE OR NOT RESHARD_ZLIB_LIBRARY)
    message(FATAL_ERROR "Zip files need zlib, with its static library: scripts/install-deps build "
        "installs it (zlib1g-dev).")
endif()
message(STATUS "zlib: ${RESHARD_ZLIB_LIBRARY}")

# reshard_link_zlib(name): links it into <name>_shared and <name>_static. Debian's libz.a is not made
# for shared libraries; -Bsymbolic lets it be part of one all the same.
function(reshard_link_zlib name)
    foreach(library ${name}_shared ${name}_static)
        target_link_libraries(${library} PRIVATE
            "$<BUILD_INTERFACE:${RESHARD_ZLIB_LIBRARY}>" "$<INSTALL_INTERFACE:z>")
    endforeach()
    target_link_options(${name}_shared PRIVATE LINKER:-Bsymbolic LINKER:--exclude-libs,libz.a)
    target_link_options(${name}_static INTERFACE "$<BUILD_INTERFACE:LINKER:--exclude-libs,libz.a>")
endfunction()
