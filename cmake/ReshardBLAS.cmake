# SPDX-License-Identifier: Apache-2.0
# Finds OpenBLAS, for products of matrices in src/tensor and for `reshard bench train` beside them;
# nothing else needs it. Ranks can be threads that multiply at the same time: that takes the variant
# with threads, which src/tensor/ops/product.c holds to one. The library is linked by name, so that what
# is installed holds no path of this machine.
find_path(RESHARD_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas)
find_library(RESHARD_CBLAS_LIBRARY NAMES openblas)
if(NOT RESHARD_CBLAS_INCLUDE OR NOT RESHARD_CBLAS_LIBRARY)
    message(FATAL_ERROR "Tensors need OpenBLAS: scripts/install-deps build installs it "
        "(libopenblas-dev).")
endif()
message(STATUS "BLAS: ${RESHARD_CBLAS_LIBRARY}")
