# SPDX-License-Identifier: Apache-2.0
# Sets RESHARD_HAS_NN: whether libreshard_nn is built, and finds OpenBLAS, which src/tensor multiplies
# matrices with and bench/train.c measures beside; nothing else needs it. Ranks can be threads that
# multiply at the same time: that takes the variant with threads, which src/tensor/ops/product.c holds
# to one. The library is linked by name, so that what is installed holds no path of this machine.
set(RESHARD_NN AUTO CACHE STRING
    "Build libreshard_nn: ON, OFF, or AUTO for where OpenBLAS is found")
set_property(CACHE RESHARD_NN PROPERTY STRINGS AUTO ON OFF)

set(RESHARD_HAS_NN OFF)
if(RESHARD_NN)
    find_path(RESHARD_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas)
    find_library(RESHARD_CBLAS_LIBRARY NAMES openblas)
    if(RESHARD_CBLAS_INCLUDE AND RESHARD_CBLAS_LIBRARY)
        set(RESHARD_HAS_NN ON)
    elseif(NOT RESHARD_NN STREQUAL "AUTO")
        message(FATAL_ERROR "Tensors need OpenBLAS: scripts/install-deps nn installs it "
            "(libopenblas-dev).")
    endif()
endif()
if(RESHARD_HAS_NN)
    message(STATUS "Tensors and modules: ${RESHARD_CBLAS_LIBRARY}")
else()
    message(STATUS "Tensors and modules: not built")
endif()
