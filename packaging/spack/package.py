# SPDX-License-Identifier: Apache-2.0
"""reshard for Spack. Untried: written from Spack's documentation. Set `git` to where your sources are."""
from spack.package import *


class Reshard(CMakePackage):
    """Converts and re-splits model checkpoints, and plans moves of tensors between ranks."""

    license("Apache-2.0")

    # There is no release page yet: `spack dev-build reshard@0.3.0` inside the tree needs none.
    version("0.3.0")

    variant("mpi", default=True, description="Build the MPI backend, libreshard_mpi")
    variant("nn", default=False, description="Build tensors and modules, libreshard_nn")

    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("zlib-api")
    depends_on("zstd libs=static")
    depends_on("mpi", when="+mpi")
    depends_on("openblas", when="+nn")

    def cmake_args(self):
        return [
            self.define("RESHARD_BUILD_TESTS", False),
            self.define_from_variant("RESHARD_MPI", "mpi"),
            self.define_from_variant("RESHARD_NN", "nn"),
        ]
