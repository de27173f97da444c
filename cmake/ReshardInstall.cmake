# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. Nothing installed holds an absolute path, so that the prefix
# may still be chosen at install time.
include(CMakePackageConfigHelpers)

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/reshard")

install(TARGETS reshard_shared reshard_static EXPORT reshard
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/reshard
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(TARGETS reshard_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

file(GLOB man_pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/man/*.[1-8]")
foreach(page IN LISTS man_pages)
    string(REGEX REPLACE ".*\\." "" section "${page}")
    install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}")
endforeach()

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
