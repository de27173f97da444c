# SPDX-License-Identifier: Apache-2.0
# How tests are added.
#
#   reshard_add_test(NAME name SOURCES a.c ... [LABELS fast|full ...] [TIMEOUT seconds])
#       A cmocka program, linked with tests/support and the static library (which hides nothing).
#   reshard_tells_cases(name ...)
#       Tests that restate PyTorch's write down what they run (tests/support/ran.h, tests/upstream).
#   reshard_add_command_test(NAME name COMMAND program argument ... [LABELS ...] [TIMEOUT seconds])
#       Any program or script.
#
# Label `fast` is the default: the tests that carry it take 10 seconds together. A test that exits
# with 77 was skipped. TIMEOUT only ends what hangs, so it is far above what a test takes on a busy
# machine: 300 by default, for a plain build; sanitizers get five times that.

# Open MPI needs these to run as root, and with more ranks than cores; MPICH ignores them.
# LeakSanitizer would report what MPI itself leaves behind.
set(RESHARD_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_mpi_yield_when_idle=1
    ASAN_OPTIONS=detect_leaks=0
    UBSAN_OPTIONS=print_stacktrace=1)

function(reshard_require_cmocka)
    find_package(PkgConfig REQUIRED)
    pkg_check_modules(CMOCKA IMPORTED_TARGET GLOBAL cmocka)
    if(NOT CMOCKA_FOUND)
        message(FATAL_ERROR "The tests need cmocka: scripts/install-deps test installs it, "
            "-DRESHARD_BUILD_TESTS=OFF builds without tests.")
    endif()
endfunction()

function(reshard_set_test_properties name labels timeout)
    if(NOT labels)
        set(labels fast)
    endif()
    if(NOT timeout)
        set(timeout 300)
    endif()
    if(RESHARD_SANITIZE)
        math(EXPR timeout "5 * ${timeout}")
    endif()
    # Tests ask for impossible amounts of memory on purpose, and expect NULL.
    set(options "allocator_may_return_null=1:halt_on_error=1")
    set(environment
        "ASAN_OPTIONS=${options}:detect_stack_use_after_return=1"
        "TSAN_OPTIONS=${options}"
        "UBSAN_OPTIONS=print_stacktrace=1")
    set_tests_properties(${name} PROPERTIES
        LABELS "${labels}"
        TIMEOUT ${timeout}
        SKIP_RETURN_CODE 77
        ENVIRONMENT "${environment}")
endfunction()

function(reshard_add_test)
    cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT" "SOURCES;LABELS")
    add_executable(test-${ARG_NAME} ${ARG_SOURCES})
    target_link_libraries(test-${ARG_NAME} PRIVATE reshard_test_support)
    add_test(NAME ${ARG_NAME} COMMAND test-${ARG_NAME})
    reshard_set_test_properties(${ARG_NAME} "${ARG_LABELS}" "${ARG_TIMEOUT}")
endfunction()

function(reshard_add_command_test)
    cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT" "COMMAND;LABELS")
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND})
    reshard_set_test_properties(${ARG_NAME} "${ARG_LABELS}" "${ARG_TIMEOUT}")
endfunction()

function(reshard_tells_cases)
    foreach(name IN LISTS ARGN)
        set(file "${PROJECT_BINARY_DIR}/ran_${name}.txt")
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "RESHARD_TEST_RAN=${file}")
        set_property(TEST ${name} PROPERTY FIXTURES_SETUP upstream)
        set_property(GLOBAL APPEND PROPERTY RESHARD_RAN_FILES "${file}")
    endforeach()
endfunction()
