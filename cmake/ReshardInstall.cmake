# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. Nothing installed holds an absolute path, so that the prefix
# may still be chosen at install time.
include(CMakePackageConfigHelpers)

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/reshard")

# Headers beside those of libreshard: <reshard/mpi*.h>, and whatever reshard_nn.h brings.
file(GLOB mpi_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/reshard/mpi*.h")
file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/reshard/*.h")
file(STRINGS include/reshard/reshard_nn.h nn_headers REGEX "^#include <reshard/")
list(TRANSFORM nn_headers REPLACE "^#include <(.*)>.*" "${PROJECT_SOURCE_DIR}/include/\\1")
list(REMOVE_ITEM nn_headers "${PROJECT_SOURCE_DIR}/include/reshard/reshard.h")
list(APPEND nn_headers "${PROJECT_SOURCE_DIR}/include/reshard/reshard_nn.h")
list(REMOVE_ITEM headers ${mpi_headers} ${nn_headers})

# Each further library is a component of its own, so that its dependencies are needed only by those
# who ask for it.
#   install_library(name HEADERS files [PACKAGE name])
# PACKAGE: the name of its component, .pc file and file of targets; without, it is the first.
file(RELATIVE_PATH to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}") # from the .pc files back to the prefix
function(install_library name)
    cmake_parse_arguments(PARSE_ARGV 1 ARG "" "PACKAGE" "HEADERS")
    set(package reshard)
    if(ARG_PACKAGE)
        set(package reshard-${ARG_PACKAGE})
    endif()
    install(TARGETS ${name}_shared ${name}_static EXPORT ${name}
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(FILES ${ARG_HEADERS} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/reshard")
    install(EXPORT ${name} NAMESPACE reshard::
        FILE ${package}-targets.cmake DESTINATION "${config_dir}")
    configure_file(cmake/${package}.pc.in "${PROJECT_BINARY_DIR}/${package}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/${package}.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()

install_library(reshard HEADERS ${headers})
install(TARGETS reshard_command reshard_bench RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
if(RESHARD_HAS_NN)
    install_library(reshard_nn PACKAGE nn HEADERS ${nn_headers})
    install(TARGETS reshard_bench_nn RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
if(RESHARD_HAS_MPI)
    install_library(reshard_mpi PACKAGE mpi HEADERS ${mpi_headers})
    install(TARGETS reshard_mpi_bench
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_SKIP)
endif()
install(FILES cli/completion/reshard.bash
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME reshard)
install(FILES cli/completion/_reshard DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
install(FILES LICENSE packaging/NOTICES README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
# The pages that help and man pages name as docs/NAME.md.
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png" PATTERN man EXCLUDE)

# Man pages are made from Markdown, if lowdown is installed.
find_program(LOWDOWN lowdown)
file(GLOB man_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/man/*.md")
set(man_pages "")
foreach(source IN LISTS man_sources)
    if(LOWDOWN)
        cmake_path(GET source STEM LAST_ONLY name)
        string(REGEX MATCH "[0-9]$" section "${name}")
        set(page "${PROJECT_BINARY_DIR}/man/${name}")
        # Those of section 7 are made of pages of docs/ as well.
        add_custom_command(OUTPUT "${page}"
            COMMAND "${CMAKE_COMMAND}" -DPAGE=${source} -DROOT=${PROJECT_SOURCE_DIR} -DLOWDOWN=${LOWDOWN} -DOUTPUT=${page}
                -DVERSION=${RESHARD_VERSION}
                -P "${PROJECT_SOURCE_DIR}/cmake/JoinManPage.cmake"
            DEPENDS "${source}" cmake/JoinManPage.cmake docs/spec.md docs/rules.md
            COMMENT "Making man page ${name}" VERBATIM)
        list(APPEND man_pages "${page}")
        install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}")
    endif()
endforeach()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/man")
add_custom_target(man ALL DEPENDS ${man_pages})

configure_package_config_file(cmake/reshard-config.cmake.in
    "${PROJECT_BINARY_DIR}/reshard-config.cmake" INSTALL_DESTINATION "${config_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/reshard-config-version.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/reshard-config.cmake"
    "${PROJECT_BINARY_DIR}/reshard-config-version.cmake"
    DESTINATION "${config_dir}")
