# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. Nothing installed holds an absolute path, so that the prefix
# may still be chosen at install time.
include(CMakePackageConfigHelpers)

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/reshard")

install(TARGETS reshard_shared reshard_static EXPORT reshard
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/reshard
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "mpi*.h" EXCLUDE)
install(TARGETS reshard_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# Man pages are made from Markdown where lowdown is there to do it.
find_program(LOWDOWN lowdown)
file(GLOB man_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/man/*.md")
set(man_pages "")
foreach(source IN LISTS man_sources)
    if(LOWDOWN)
        cmake_path(GET source STEM LAST_ONLY name)
        set(page "${PROJECT_BINARY_DIR}/man/${name}")
        add_custom_command(OUTPUT "${page}"
            COMMAND "${LOWDOWN}" -s -t man --out-no-smarty -o "${page}" "${source}"
            DEPENDS "${source}" COMMENT "Making man page ${name}" VERBATIM)
        list(APPEND man_pages "${page}")
        install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
    endif()
endforeach()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/man")
add_custom_target(man ALL DEPENDS ${man_pages})

install(EXPORT reshard NAMESPACE reshard:: FILE reshard-targets.cmake DESTINATION "${config_dir}")
configure_package_config_file(cmake/reshard-config.cmake.in
    "${PROJECT_BINARY_DIR}/reshard-config.cmake" INSTALL_DESTINATION "${config_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/reshard-config-version.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/reshard-config.cmake"
    "${PROJECT_BINARY_DIR}/reshard-config-version.cmake"
    DESTINATION "${config_dir}")

# The way from the folder of reshard.pc back to the prefix.
file(RELATIVE_PATH to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
configure_file(cmake/reshard.pc.in "${PROJECT_BINARY_DIR}/reshard.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/reshard.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# The MPI backend is a package beside the package: who does not ask for it needs no MPI.
if(RESHARD_HAS_MPI)
    install(TARGETS reshard_mpi_shared reshard_mpi_static EXPORT reshard_mpi
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(FILES include/reshard/mpi.h include/reshard/mpi_bench.h include/reshard/mpi_run.h
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/reshard")
    install(EXPORT reshard_mpi NAMESPACE reshard::
        FILE reshard-mpi-targets.cmake DESTINATION "${config_dir}")
    configure_file(cmake/reshard-mpi.pc.in "${PROJECT_BINARY_DIR}/reshard-mpi.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/reshard-mpi.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
