#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes a table from a split by rows to a split by columns, on four threads or, as `mpirun -n 4 python3 ranks.py mpi`, processes."""
import sys

import numpy

import reshard

SHAPE = (8, 12)


def body(group):
    """Each rank has its rows of a table and gets its columns; every element is its own index."""
    table = numpy.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)
    rows = numpy.split(table, group.size)[group.rank]
    columns = group.redistribute(rows, f"{group.size}: S(0)", f"{group.size}: S(1)")
    assert numpy.array_equal(columns, numpy.split(table, group.size, axis=1)[group.rank])
    return int(group.all_reduce(columns.sum()))


if "mpi" in sys.argv[1:]:
    from mpi4py import MPI

    import reshard.mpi

    with reshard.mpi.group(MPI.COMM_WORLD) as world:
        total = body(world)
        print(f"{world}: {total}")
else:
    print(reshard.run(4, body))
