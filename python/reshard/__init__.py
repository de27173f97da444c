# SPDX-License-Identifier: Apache-2.0
"""reshard: how tensors are split over ranks, devices or files, and how to get from one split to another.

    ck = reshard.open("model/")                     any checkpoint that the command reads
    ck["lm_head.weight"][0:1000]                    a box of a tensor, as a NumPy array
    ck.named("hf")["lm_head.weight"]                the same under another naming, without converting it
    ck.shard("tp=8", rank=3)                        the part that a rank of a mesh holds, by the rules of the model's family
    reshard.convert("model/", "model-tp4/", to="tp=4", dtype="bf16")
    reshard.plan((8192, 8192), "f32", "4: S(0)", "dp=2,tp=2: R, S(1)").matrix

The work is done by libreshard, which is loaded at the first call. docs/python.md is the tutorial.
"""
from ._checkpoint import Checkpoint, Digests, View, open
from ._comparison import Comparison, Difference, Distance, compare, digest, verify
from ._conversion import (Conversion, ConversionReport, ConversionTensor, Cuts, Format, convert, families, formats,
                          namings)
from ._dtypes import dtype_name, numpy_dtype
from ._errors import (Cancelled, Check, Corrupt, Error, Gap, GroupBroken, Invalid, Io, LibraryMissing, MemoryLimit,
                      Mismatch, NoMemory, NotFound, Overlap, Range, Syntax, Timeout, Unfinished, Unsupported)
from ._exec import Exec
from ._group import Group, run
from ._layout import Boxes, Layout, Piece, ShardInfo, Spec
from ._library import library_path, version
from ._plan import Part, Plan, PlanStats, PlanTensor, StageLink, StreamMove, plan, plan_tensors
from ._shard import Shard
from ._stored import StoredPiece, StoredTensor
from ._trace import Trace
from ._native import RESHARD_VERSION_MAJOR, RESHARD_VERSION_MINOR, RESHARD_VERSION_PATCH

__version__ = "%d.%d.%d" % (RESHARD_VERSION_MAJOR, RESHARD_VERSION_MINOR, RESHARD_VERSION_PATCH)

__all__ = [
    "Boxes", "Cancelled", "Check", "Checkpoint", "Comparison", "Conversion", "ConversionReport", "ConversionTensor",
    "Corrupt", "Cuts", "Difference", "Digests", "Distance", "Error", "Exec", "Format", "Gap", "Group", "GroupBroken", "Invalid", "Io", "Layout",
    "LibraryMissing", "MemoryLimit", "Mismatch", "NoMemory", "NotFound", "Overlap", "Part", "Piece", "Plan",
    "PlanStats", "PlanTensor", "Range", "Shard", "ShardInfo", "Spec", "StageLink", "StoredPiece", "StoredTensor",
    "StreamMove", "Syntax", "Timeout", "Trace", "Unfinished", "Unsupported", "View", "compare", "convert", "digest", "dtype_name",
    "families", "formats", "library_path", "namings", "numpy_dtype", "open", "plan", "plan_tensors", "run", "verify", "version",
]
