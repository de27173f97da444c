# SPDX-License-Identifier: Apache-2.0
# Sets RESHARD_HAS_MPI: whether the MPI backend is built. To build with an MPI that is not the
# system's first choice: -DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich
set(RESHARD_MPI AUTO CACHE STRING "Build libreshard_mpi: ON, OFF, or AUTO for where MPI is found")
set_property(CACHE RESHARD_MPI PROPERTY STRINGS AUTO ON OFF)

set(RESHARD_HAS_MPI OFF)
if(RESHARD_MPI STREQUAL "AUTO")
    find_package(MPI 3.0 QUIET COMPONENTS C)
    set(RESHARD_HAS_MPI ${MPI_C_FOUND})
elseif(RESHARD_MPI)
    find_package(MPI 3.0 REQUIRED COMPONENTS C)
    set(RESHARD_HAS_MPI ON)
endif()
if(RESHARD_HAS_MPI)
    message(STATUS "MPI backend: MPI ${MPI_C_VERSION}, ${MPI_C_COMPILER}")
else()
    message(STATUS "MPI backend: not built")
endif()
