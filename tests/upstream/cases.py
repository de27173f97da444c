# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own tests run: sizes, dtypes and specs, in our spec language.

Each function is named after a test of PyTorch's and gives its cases, by the loops that the test
has. A tensor that PyTorch makes of local ones (from_local, init_from_local_shards) has its global
size here. World size 4 where a mesh does not say otherwise. Read from PyTorch's development branch
of 2025 and 2026 (tests of partial tensors and of the Megatron prototype: release 1.13).

`WITHOUT` tells what cannot be restated, and why.
"""
import itertools
import math

# ---- shuffled placements -----------------------------------------------------------------------

# PyTorch shuffles one list again and again, from a seed that grows by one.
SHUFFLED = {5: ["0,1,3,2", "2,3,1,0", "2,3,0,1", "1,0,3,2", "1,0,2,3", "3,2,0,1", "3,2,1,0",
                "0,1,2,3"],
            6: ["3,2,1,0", "0,2,3,1"],
            7: ["3,1,0,2"],
            31: ["2,3,1,0", "3,1,0,2", "2,3,0,1", "3,2,1,0"]}
GRID = "boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 2[5:10,0:5] 3[5:10,5:10]"
TWO_BOXES = "boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]"  # refused by its kind, whatever the tensor
SIX = [("12x3", 0), ("13x3", 0), ("14x3", 0), ("3x12", 1), ("3x13", 1), ("3x14", 1)]


# ---- test_sharded_tensor_reshard.py ------------------------------------------------------------

def test_sharded_tensor_reshard():
    orders = iter(SHUFFLED[5])
    for old, new in itertools.product((0, 1), (0, 1)):
        source, target = next(orders), next(orders)
        for size in ("13x21", "14x23", "15x26", "12x24"):
            yield f"f32 {size} 4[{source}]: S({old}) -> 4[{target}]: S({new})"


def test_sharded_tensor_reshard_errors():
    source, target = SHUFFLED[6]
    yield f"f32 24x12 4[{source}]: S(0) -> {TWO_BOXES}"
    # Two shards on each rank. PyTorch's test lists one shard twice, which is no tensor.
    halves = " ".join(f"{i // 2}[{3 * i}:{3 * i + 3},0:12]" for i in range(8))
    yield f"f32 24x12 boxes 24x12: {halves} -> 4[{target}]: S(1)"


# ---- test_sharded_tensor.py: sharding ----------------------------------------------------------

def test_shard_parameter():
    yield "f32 12x12 4: S(0)"


def test_shard_parameter_errors():
    yield "f32 12x12 4: S(0), from each rank itself"
    yield "f32 10x10 4: S(0), transposed"
    yield f"f32 12x12 {TWO_BOXES}"
    yield "f32 12x12 " + ", ".join(f"4[{rank},1,2,3]: S(0)" for rank in range(4))


def test_shard_tensor():
    yield "f32 12x12 4: S(0)"


def test_shard_tensor_with_empty_shard():
    yield "f32 9x12 4: S(0)"


def test_shard_tensor_errors():
    yield "f32 12x12 4: S(0), from each rank itself"
    yield "f32 12x12 4: S(0), transposed"
    yield f"f32 12x12 {TWO_BOXES}"
    yield "f32 12x12 " + ", ".join(f"4[{rank},1,2,3]: S(0)" for rank in range(4))


def test_reshard_output():
    yield f"f32 24x12 4[{SHUFFLED[5][0]}]: S(0) -> 4[{SHUFFLED[5][1]}]: S(1)"


def test_collect_local_shard():
    yield f"f32 23x15 4[{SHUFFLED[5][0]}]: S(0)"


def test_local_tensor():
    yield "f32 24x12 4: S(0)"


def test_local_tensor_error():
    yield "f32 24x12 10[0,0,1,1,1,2,2,2,3,3]: S(0)"


# ---- test_sharded_tensor.py: making ------------------------------------------------------------

def test_sharded_tensor_metadata():
    for dtype in ("f32", "f64"):
        yield f"{dtype} 10x20 4: S(0)"
        yield f"{dtype} 10x10 {GRID}"


def test_complete_world_size():
    for dim in (0, -2):
        yield f"f32 10x20 4: S({dim})"


def test_create_sharded_tensor_with_ones():
    yield "f32 10x20 4: S(0)"
    yield f"f32 10x10 {GRID}"


def test_create_sharded_tensor_with_zeros():
    yield "f32 10x20 4: S(0)"


def test_create_sharded_tensor_with_full():
    yield "i32 10x20 4: S(0)"


def test_create_sharded_tensor_with_rand():
    for factory in ("rand", "randn"):
        yield f"f64 8x2 4: S(0), {factory}"


def test_create_sharded_tensor_like():
    for factory in ("zeros", "ones", "rand", "randn", "empty", "full 8.8"):
        yield f"f64 8x8 4: S(0), {factory}"


def test_gather_even():
    yield "f32 10x20 4: S(0), to 1"
    yield f"f32 10x10 {GRID}, to 0"


def test_gather_uneven():
    yield "f32 10x20 5[0,0,1,1,2]: S(0), to 1"
    yield "f32 10x10 boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 3[5:10,5:10], to 0"


def test_grid_sharding():
    yield f"f32 10x10 {GRID}"


def test_uneven_shards():
    yield "f32 6x6 boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]"


def test_partial_world_size():
    yield "f32 10x20 2[2,3]: S(0)"
    yield "f32 10x5 boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]"


def test_new_group():
    # Ranks 2 and 3 (1 and 3) of the world are ranks 1 and 2 (0 and 2) of the group 1, 2, 3.
    yield "f32 10x20 2[1,2]: S(0) of 1,2,3"
    yield "f32 10x5 boxes 10x5: 0[0:5,0:5] 2[5:10,0:5] of 1,2,3"


def test_multiple_local_shards():
    yield "f32 16x20 8[0,1,2,3,0,1,2,3]: S(0)"
    yield "f32 10x10 boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 1[5:10,5:10]"


def test_sharding_columns():
    for dim in (1, -1):
        yield f"f32 10x32 4: S({dim})"


def test_invalid_sharding():
    for dim in (2, 3, 4, -3, -4, -5):
        yield f"f32 10x20 1[1]: S({dim})"
    yield "f32 10x20 1[5]: S(0)"
    yield "f32 10x20 1: S(0) + f32 10x20"
    yield "f32 10x20 1[1]: S(H)"
    yield "f32 10x20 1[worker0]: S(0)"
    yield "f32 10x20 1[workerfoo]: S(0)"


def test_insufficient_sharding_dims():
    yield "f32 2x20 4: S(0)"


def test_sharded_tensor_sizes():
    yield "f32 10x20 4: S(0)"
    yield "f32 10 4: S(0)"


# ---- test_sharded_tensor.py: state dicts -------------------------------------------------------

def state(does, spec, ranks):
    return f"{does} f32 10x20 {spec}, f32 2x2, f32 10x20 {spec}, f32 2x2 by {ranks} ranks"


def test_state_dict():
    for does in ("saved", "loaded"):
        yield state(does, "4: S(0)", 4)


def test_state_dict_new_group():
    # Ranks 2, 3, 2, 3 of the world are 0, 1, 0, 1 of the group 2, 3.
    for does in ("saved", "loaded"):
        yield state(does, "4[0,1,0,1]: S(0)", 2)


def test_state_dict_no_sharded_tensors():
    yield "f32 10x10, f32 10"


def test_load_state_dict_errors():
    # PyTorch refuses the group 0, 2, 3 for a tensor that four ranks saved.
    yield state("saved", "4: S(0)", 4)
    yield state("loaded", "3: S(0)", 3)


# ---- test_sharded_tensor.py: local tensors and shards ------------------------------------------

def test_init_from_local_tensor():
    for order, dim in zip(SHUFFLED[31], (0, 1, 1, 0)):
        for size in ("20x10", "21x11", "23x16", "44x16x8"):
            yield f"f32 {size} 4[{order}]: S({dim})"


def test_init_from_local_tensor_errors():
    yield f"f32 24x12 {TWO_BOXES}"
    yield f"f32 24x12 4[{SHUFFLED[31][0]}]: S(0), transposed"


def test_local_shards():
    yield "f32 10x10 in 5x5"


def test_init_from_local_shards():
    yield "f32 10x10 in 5x5"


def test_init_from_local_shards_and_global_metadata():
    yield "f32 10x10 in 5x5"


def test_init_from_local_shards_and_global_metadata_with_all_zeros():
    yield "f32 0x0 in 0x0"


def test_init_from_local_shards_new_group():
    yield "f32 15x5 3: S(0) of 1,2,3"


def test_init_from_local_shards_invalid_local_shards():
    yield "10x10 of nothing"


def test_init_from_local_shards_invalid_property_cross_ranks():
    yield "f32 10x5 in 5x5, on rank 0 f32 5x5 at 0,0 of 10x10"
    yield "f32 10x10 in 5x5, on rank 0 i32 5x5 at 0,0 of 10x10"
    yield "f32 10x10 in 5x5, on rank 0 f32 5x5 at 0,0 of 10x10, with gradients"


def test_init_from_local_shards_invalid_shards_overlap():
    yield "f32 10x10 in 5x5, on rank 0 f32 6x6 at 0,0 of 10x10"


def test_init_from_local_shards_invalid_shards_gaps():
    yield "f32 10x10 in 5x5, on rank 0 f32 4x4 at 0,0 of 10x10"


# ---- test_sharding_spec.py ---------------------------------------------------------------------

def test_device_placement():
    yield from ("cuda:0", "rank:0/cuda:0", "rank:0/cpu", "rank:0")
    for text in ("cuda:foo", "foo:0", "rank:0/cuda:foo", "rank:0/cpu2"):
        yield f"{text}, refused"


def test_chunked_sharding_spec():
    yield from ("2: S(0)", "2: S(-1)")
    for text in ("random:0", "cuda:foo", "rank:foo", "rank:0/foo", "rank:0/random:0",
                 "rank:0/cuda:foo"):
        yield f"{text}, refused"


def test_enumerable_sharding_spec():
    yield f"10x5 {TWO_BOXES}"
    yield "6x6 boxes 6x6: 0[0:3,0:3] 1[0:3,3:6] 2[3:6,0:3] 3[3:6,3:6]"
    yield "6x6 boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]"
    yield "5x3 boxes 5x3: 0[0:3,0:3] 1[2:5,0:3]"
    yield f"10x10x10 {TWO_BOXES}"
    yield f"10x3 {TWO_BOXES}"
    yield "10x10 boxes 10x10: 0[0:5,0:5] 1[5:10,5:10]"


def test_get_split_size():
    yield from ("11, 4: 3", "12, 4: 3", "13, 4: 4", "5, 4: 2", "11, 1: 11", "11, 11: 1")


def test_get_chunked_dim_size():
    yield from ("11, 3, 0: 3", "11, 3, 3: 2", "13, 4, 0: 4", "13, 4, 3: 1", "5, 2, 3: 0")


def test_get_chunk_sharding_params():
    yield "21 4: S(0)"
    yield "21 4[3,2,1,0]: S(0)"


def test_infer_sharding_spec_from_shards_metadata():
    yield "boxes 15x5: 0[0:5,0:5] 1[5:15,0:5]"
    yield "boxes 25: 0[0:16] 0[16:25]"
    yield "boxes 10x10: 0[0:5,0:5] 1[5:10,0:5] 2[0:5,5:10] 3[5:10,5:10]"
    for order in SHUFFLED[31]:
        for size, dim in (("4x16", 0), ("5x15x16", 0), ("12x16", 1), ("4x18x15", 2),
                          ("7x12x16x37", 3), ("50x4x18x15x77", 4)):
            yield f"{size} 4[{order}]: S({dim})"


def test_check_overlapping():
    yield "[0:5,0:5] [5:10,0:5]"
    yield "[0:5,0:5] [4:9,0:5]"
    yield "[0:5,0:5] [0:5,4:9]"
    for second in ("5:10,5:10,5:10", "5:10,4:9,5:10", "5:10,4:9,9:14"):
        yield f"[5:10,0:5,5:10] [{second}]"


def test_custom_sharding_spec():
    yield "f32 8x8, squares of 4"


def test_custom_sharding_spec_tensor_ctor():
    yield "f32 4x4, squares of 2"


def test_custom_sharding_spec_shard_tensor():
    yield "f32 8x8, squares of 2"


# ---- test_sharding_plan.py, test_sharder.py, test_megatron_prototype.py ------------------------

def test_sharding_plan_errors():
    for name in ("fc3.weight", "fc1.biass"):
        yield f"f32 12x17, f32 29x12, {name} 4: S(1)"


def test_custom_sharding_planner():
    for name, size in (("fc1.weight", "12x17"), ("fc1.bias", "12"), ("fc2.weight", "29x12"),
                       ("fc2.bias", "29")):
        yield f"{name} f32 {size} 4: S(0)"


def test_shard_module_sub_process_group():
    yield "fc1.weight f32 12x17 2: S(0) of 2,3"
    yield "fc2.weight f32 29x12 2: S(1) of 2,3"


def test_custom_sharder():
    # Ten bags of 10x8, of which the first two are cut by rows.
    yield "ebc.bag_0.table.weight f32 10x8 4: S(0)"
    yield "ebc.bag_9.table.weight f32 10x8 4: S(1)"
    yield "input i64 2x4"


def test_custom_sharder_errors():
    yield "below the sharder's module 2: S(0)"


def test_megatron_two_layer_prototype():
    for order in ("0,1,2,3", "2,3,0,1", "3,0,1,2"):
        for rows, (inputs, hidden, outputs) in ((22, (17, 12, 29)), (28, (21, 11, 29)),
                                                (37, (23, 13, 24)), (24, (15, 14, 20))):
            yield (f"input f32 {rows}x{inputs} on each rank, fc1.weight {hidden}x{inputs} "
                   f"4[{order}]: S(0), fc2.weight {outputs}x{hidden} 4[{order}]: S(1)")


# ---- test_partial_tensor.py --------------------------------------------------------------------

def test_partial_tensor_reshard():
    for size, op in (("52x21", "sum"), ("48x22", "max"), ("39x21", "sum"), ("34x21", "max")):
        yield f"f32 {size} 4: P({op}) -> 4[{SHUFFLED[7][0]}]: S(0)"


def test_partial_tensor_reshard_errors():
    for size, op in (("52x21", "sum"), ("48x22", "max")):
        yield f"f32 {size} 4: P({op}) -> {TWO_BOXES}"
        yield f"c64 {size} 4: P({op}) -> 4[{SHUFFLED[7][0]}]: S(0)"


def test_transpose():
    yield "f32 5x10 4: P(sum)"


def test_cat():
    for dim, sizes in enumerate((("5x10", "3x10", "4x10"), ("5x10", "5x12", "5x11"))):
        yield ", ".join(f"f32 {size} 4: P(sum)" for size in sizes) + f", dim {dim}"


def test_cat_errors():
    yield "f32 10 4: P(sum), f32 10"
    yield "f32 10 4: P(sum), f32 10 4: P(max)"


# ---- test_redistribute.py: one axis ------------------------------------------------------------

def test_shard_to_replicate_forward_backward():
    for dtype, (size, dim) in itertools.product(("f32", "c64"), SIX):
        yield f"{dtype} {size} 4: S({dim}) -> 4: R"


def test_replicate_to_shard_forward_backward():
    for size, dim in SIX:
        yield f"f32 {size} 4: R -> 4: S({dim})"


def test_replicate_to_replicate_forward_backward():
    yield "f32 12x3 4: R -> 4: R"


def test_partial_to_partial_forward_backward():
    for dtype in ("f32", "c64"):
        yield f"{dtype} 12x3 4: P -> 4: P"


def test_replicate_to_local_partial_grad():
    for dtype in ("f32", "c64"):
        yield f"{dtype} 12x3 4: R, gradient 4: P"


def test_partial_to_replicate_forward_backward():
    for dtype in ("f32", "c64"):
        yield f"{dtype} 12x3 4: P -> 4: R"


def test_partial_to_shard():
    for dtype, (size, dim) in itertools.product(("f32", "c64"), SIX):
        yield f"{dtype} {size} 4: P -> 4: S({dim})"


def test_replicate_to_partial():
    yield "f32 12x3 4: R -> 4: P"
    yield "f32 12x3 2,2: R, R -> 2,2: P, P"


CASTS = [("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16"), ("f32", "f32"), ("bf16", "none"),
         ("f32", "none"), ("none", "bf16"), ("none", "f32")]


def test_replicate_to_replicate_forward_backward_datatype_conversion():
    for forward, backward in CASTS:
        yield f"f32 12x3 4: R -> 4: R, forward {forward}, backward {backward}"


def test_shard_to_replicate_forward_backward_datatype_conversion():
    for (forward, backward), (size, dim) in itertools.product(CASTS, SIX):
        yield f"f32 {size} 4: S({dim}) -> 4: R, forward {forward}, backward {backward}"


def test_redistribute_negative_shard_dim():
    yield "f32 12x3 4: S(1) -> 4: S(-1)"


def test_shard_dim_alltoall():
    # 12x4 on each rank of one axis of a 2x2 mesh
    for dtype in ("f32", "c64"):
        yield f"{dtype} 24x4 2: S(0) -> 2: S(1)"


# ---- test_redistribute.py: several axes --------------------------------------------------------

def spell(mesh, letters):
    """Placements as letters, one for each axis: R, P, or the dim that is cut."""
    return f"{mesh}: " + ", ".join(f"S({c})" if c.isdigit() else c for c in letters)


def test_redistribute_uneven_sharding():
    for size, letters in itertools.product(("10x5", "9x5", "3x5", "1x3"), ("00", "01")):
        yield f"f32 {size} {spell('2,2', letters)} -> 2,2: R, R"


def test_redistribute_shard_dim_change():
    for dtype, size in itertools.product(("f32", "c64"), ("8x8", "8x8x8", "8x5", "5x8", "5x5")):
        for old, new in ("01", "10"):
            yield f"{dtype} {size} 4: S({old}) -> 4: S({new})"
        pairs = [("01", "00"), ("01", "10"), ("00", "11")]
        if size == "8x8x8":
            pairs += [("02", "10"), ("11", "12")]
        for old, new in pairs:
            yield f"{dtype} {size} {spell('2,2', old)} -> {spell('2,2', new)}"


def test_one_chunk_mesh():
    # 16x8 on each rank
    for old, new in itertools.product("1RP", "01R"):
        yield f"f32 64x8 {spell('4,1', '0' + old)} -> {spell('4,1', '0' + new)}"


def test_redistribute_to_partial():
    # 12x8 on each rank
    yield "f32 24x8 2,2: P, S(0) -> 2,2: P, S(0)"
    yield "f32 24x8 2,2: P, S(0) -> 2,2: P, S(1)"
    yield "f32 24x8 2,2: S(0), P -> 2,2: R, P"
    yield "f32 24x8 2,2: S(0), P(prod) -> 2,2: R, P(prod)"
    yield "f32 24x8 2,2: S(0), R -> 2,2: S(0), P"
    yield "f32 24x8 2,2: S(0), R -> 2,2: R, P"
    yield "f32 24x16 2,2: S(0), S(1) -> 2,2: R, P"
    yield "f32 24x8 2,2: S(0), P(prod) -> 2,2: R, P(sum)"


def test_redistribute_partial_to_different_partial_not_supported():
    yield "f32 4x4 8: P(sum) -> 8: P(avg)"


def test_multi_dim_mesh():
    # Three times the same mesh, whatever the loop over meshes says.
    for old in itertools.product("R01P", repeat=2):
        for new in itertools.product("R01", repeat=2):
            yield f"f32 16x24 {spell('4,2', old)} -> {spell('4,2', new)}"


def test_redistribute_shard_dim_multi_dim_mesh():
    for old, new in (("000", "111"), ("010", "100"), ("012", "210"), ("100", "R00"),
                     ("1R0", "R00"), ("001", "012")):
        yield f"f32 8x8x8 {spell('2,2,2', old)} -> {spell('2,2,2', new)}"


def test_multi_dim_redistribute():
    for mesh, old, new in (("4,2", "PP", "RR"), ("4,2", "PP", "00"), ("4,2", "PP", "01"),
                           ("2,2,2", "PP0", "000"), ("2,2,2", "PPP", "RRR"),
                           ("2,2,2", "P0P", "RRR"), ("2,2,2", "PRP", "RRR"),
                           ("4,2", "00", "RR"), ("4,2", "01", "RR"), ("2,2,2", "PPR", "01R")):
        yield f"f32 16x16x16 {spell(mesh, old)} -> {spell(mesh, new)}"


def to_whole(size, old):
    return f"f32 {size} {spell('2,2,2', old)} -> 2,2,2: R, R, R"


def test_merging_reductions():
    # 8x8 on each rank
    for size, old in (("8x8", "PPP"), ("8x8", "PPR"), ("8x8", "PRP"), ("16x8", "P0P")):
        yield to_whole(size, old)


def test_no_flattened_mesh_returns_original():
    yield to_whole("8x8", "PRP")


def test_consecutive_reductions_flattened():
    yield to_whole("8x8", "PPR")


def test_non_consecutive_dims_not_merged():
    yield to_whole("8x8", "P0P")


def test_all_dims_flattened():
    yield to_whole("8x8", "PPP")


def test_single_reduction_not_flattened():
    yield to_whole("8x8", "PRR")


def test_all_gathers_grouped():
    yield to_whole("8x8", "00R")


def test_mixed_collective_types_not_grouped():
    yield to_whole("8x8", "P0R")


# ---- test_redistribute.py: orders --------------------------------------------------------------

def list_orders(ndim):
    """All ways to cut ndim dims by three axes: for each dim the axes that cut it, in order."""
    for axes in itertools.permutations("abc"):
        for parts in range(1, 4):
            for ends in itertools.combinations((1, 2), parts - 1):
                for dims in itertools.combinations(range(ndim), parts):
                    bounds = (0, *ends, 3)
                    cuts = [f"S({dim})@{axis}" for i, dim in enumerate(dims)
                            for axis in axes[bounds[i]:bounds[i + 1]]]
                    yield "a=2,b=2,c=2: " + ", ".join(cuts)


def test_generate_shard_orders():
    for ndim in (2, 3):  # and 4, of which no cost is asked for
        yield f"2,2,2 and {ndim} dims, {len(list(list_orders(ndim)))} orders"


def test_ordered_distribute_all_combination():
    for size in ("16x8", "8x16x32", "17x5", "33x16x8x1"):
        for order in list_orders(size.count("x") + 1):
            yield f"f32 {size} {order}"


def test_ordered_redistribute():
    for old, new in (("S(0)@a, S(0)@b, S(0)@c", "S(0)@b, S(0)@c"),
                     ("S(0)@b, S(0)@a, S(0)@c", "S(0)@b, S(0)@c"),
                     ("S(0)@b, S(0)@a, S(0)@c", "S(0)@a, S(0)@b"),
                     ("S(0)@a, S(0)@b", "S(0)@c, S(1)@b")):
        yield f"f32 8x8x8 a=2,b=2,c=2: {old} -> a=2,b=2,c=2: {new}"


def test_force_min_cost_redistribution_plan():
    yield ("f32 8x8x8 a=2,b=2,c=2: S(0)@a, S(0)@b, S(0)@c -> "
           "a=2,b=2,c=2: S(1)@a, S(1)@b, S(1)@c")


def test_graph_based_redistribute_cost():
    yield "f32 16x8, 24 orders"
    yield "f32 13x2x13, 60 orders"


def test_ordered_redistribute_with_partial():
    for local in ((16, 8), (8, 16, 32), (17, 5), (13, 2, 13), (33, 16, 8, 1)):
        for placements in itertools.combinations(("S(0)", "S(1)", "S(2)", "P(sum)", "P(min)", "R"),
                                                 3):
            if len(local) == 2 and "S(2)" in placements:
                continue
            source = "2,2,2: " + ", ".join(placements)
            if "P(sum)" in placements and "P(min)" in placements:
                # refused here, and by newer versions of PyTorch
                yield "f32 " + "x".join(map(str, local)) + " " + source
                continue
            size = [n * 2 ** placements.count(f"S({d})") for d, n in enumerate(local)]
            for order in list_orders(len(local)):
                yield "f32 " + "x".join(map(str, size)) + f" {source} -> {order}"


def test_shard_order_same_data_as_strided_shard():
    yield "f32 8x4 a=4,b=2: S(-2*2), S(-2) -> a=4,b=2: S(0)@b, S(0)@a"


# ---- test_placement_types.py -------------------------------------------------------------------

def test_equality():
    for cut in ("S(3)", "S(4)", "S(3*1)", "S(3*2)", "S(4*9)", "R", "P(sum)", "P(max)"):
        yield f"4: {cut}"


def test_select_split_tensor_matches_split_tensor():
    for length, ranks in ((16, 4), (17, 4), (15, 4), (7, 4), (3, 4), (1, 4), (8, 1), (8, 8),
                          (8, 16)):
        yield f"f32 {length}x4 {ranks}: R -> {ranks}: S(0)"
        yield f"f32 4x{length} {ranks}: R -> {ranks}: S(1)"


# ---- test_tp_examples.py, test_fsdp_2d_parallel.py ---------------------------------------------

def test_mlp_training():
    yield "input f32 8x10, on 4 ranks"
    yield "input f32 32x10 4: S(0), on 4 ranks"  # sequence parallel: 8x10 on each rank


def test_2d_e2e_training():
    yield "input f32 8x5 dp=2,tp=2: S(0), R"  # 4x5 for each coordinate of dp


# ---- what there is not -------------------------------------------------------------------------

WITHOUT = {
    "sparse and channels-last tensors, pinned memory": "tensors are dense, strided and unpinned",
    "devices other than the CPU": "device strings are parsed and kept; memory is the CPU's",
    "remote references, RPC, worker names as owners": "owners are ranks",
    "traces of the redistribution plan": "a redistribute is one plan; bytes are compared instead",
    "meta tensors (test_shard_dim_alltoall)": "shapes are those of the real tensor",
    "metadata that is given, and wrong (test_init_from_local_shards_and_global_metadata_invalid_shards)":
        "metadata is always gathered, never given",
    "copies of an all_gather (test_all_gather_view_optimization_batch1, _no_optimization_gather_dim_not_1, "
    "_split_cat_fallback_batch_gt_1)": "bytes go straight to their places; the same cuts are run in smaller sizes",
    "parts of the redistribution planner (test_comm_type_key, test_empty_input)": "there are no such parts",
}


def all_cases():
    """{test: [cases]}"""
    return {name: list(made()) for name, made in globals().items()
            if name.startswith("test_") and callable(made)}


# The loops above must come to PyTorch's own numbers: of orders, as test_generate_shard_orders has
# it, and of placements.
assert all(len(set(list_orders(m))) == math.factorial(3) * sum(
    math.comb(2, i - 1) * math.comb(m, i) for i in range(1, 4)) for m in (2, 3, 4))
assert len(list(test_sharded_tensor_reshard())) == 16
