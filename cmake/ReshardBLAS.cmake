# SPDX-License-Identifier: Apache-2.0
# Finds a BLAS with the C interface, for products of matrices in src/tensor; nothing else needs it.
# It has to be one that many threads may call at once and that starts none itself, for ranks can be
# threads: Debian's libopenblas-serial-dev. The library is linked by name, so that what is installed
# holds no path of this machine.
find_path(RESHARD_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-serial)
find_library(RESHARD_CBLAS_LIBRARY NAMES openblas)
if(NOT RESHARD_CBLAS_INCLUDE OR NOT RESHARD_CBLAS_LIBRARY)
    message(FATAL_ERROR "Tensors need OpenBLAS: scripts/install-deps build installs it "
        "(libopenblas-serial-dev).")
endif()
message(STATUS "BLAS: ${RESHARD_CBLAS_LIBRARY}")
