# SPDX-License-Identifier: Apache-2.0
# Finds zlib, for the CRCs and deflated members of zip files, and zstd, for compressed distributed
# checkpoints (src/checkpoint/archive). They are linked statically and stay out of sight: what we
# build needs neither at run time, and other libraries of a process never see our copies. Programs
# that link the installed libreshard.a add -lz -lzstd.
find_path(RESHARD_ZLIB_INCLUDE zlib.h)
find_library(RESHARD_ZLIB_LIBRARY NAMES libz.a)
find_path(RESHARD_ZSTD_INCLUDE zstd.h)
find_library(RESHARD_ZSTD_LIBRARY NAMES libzstd.a)
if(NOT RESHARD_ZLIB_INCLUDE OR NOT RESHARD_ZLIB_LIBRARY)
    message(FATAL_ERROR "Zip files need zlib, with its static library: scripts/install-deps build "
        "installs it (zlib1g-dev).")
endif()
if(NOT RESHARD_ZSTD_INCLUDE OR NOT RESHARD_ZSTD_LIBRARY)
    message(FATAL_ERROR "Compressed checkpoints need zstd, with its static library: "
        "scripts/install-deps build installs it (libzstd-dev).")
endif()
message(STATUS "zlib: ${RESHARD_ZLIB_LIBRARY}")
message(STATUS "zstd: ${RESHARD_ZSTD_LIBRARY}")

# reshard_link_compression(name): links them into <name>_shared and <name>_static. Debian's libz.a is
# not made for shared libraries; -Bsymbolic lets it be part of one all the same.
function(reshard_link_compression name)
    set(hidden LINKER:--exclude-libs,libz.a:libzstd.a)
    foreach(library ${name}_shared ${name}_static)
        target_link_libraries(${library} PRIVATE
            "$<BUILD_INTERFACE:${RESHARD_ZLIB_LIBRARY}>" "$<INSTALL_INTERFACE:z>"
            "$<BUILD_INTERFACE:${RESHARD_ZSTD_LIBRARY}>" "$<INSTALL_INTERFACE:zstd>")
    endforeach()
    target_link_options(${name}_shared PRIVATE LINKER:-Bsymbolic ${hidden})
    target_link_options(${name}_static INTERFACE "$<BUILD_INTERFACE:${hidden}>")
endfunction()
