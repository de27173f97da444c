# SPDX-License-Identifier: Apache-2.0
"""What the package uses of libreshard's headers. Made by scripts/python-declarations: do not edit."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64,
                    c_void_p)
from os import PathLike
from typing import Any, Mapping, Optional, Sequence, TypedDict, Union

STATUS = "status"

RESHARD_VERSION_MAJOR = 0
RESHARD_VERSION_MINOR = 3
RESHARD_VERSION_PATCH = 0
RESHARD_ABI_VERSION = 2
RESHARD_NDIM_MAX = 8
RESHARD_FACTORS_MAX = 16
RESHARD_DIM_FLAT = -2147483648
RESHARD_OK = 0
RESHARD_ERR_INVALID = -1
RESHARD_ERR_SYNTAX = -2
RESHARD_ERR_RANGE = -3
RESHARD_ERR_OVERLAP = -4
RESHARD_ERR_GAP = -5
RESHARD_ERR_UNSUPPORTED = -6
RESHARD_ERR_NOT_FOUND = -7
RESHARD_ERR_NO_MEMORY = -8
RESHARD_ERR_MEMORY_LIMIT = -9
RESHARD_ERR_CANCELLED = -10
RESHARD_ERR_MISMATCH = -11
RESHARD_ERR_UNFINISHED = -12
RESHARD_ERR_IO = -100
RESHARD_ERR_CORRUPT = -101
RESHARD_ERR_CHECK = -102
RESHARD_ERR_GROUP_BROKEN = -200
RESHARD_ERR_TIMEOUT = -201
RESHARD_BOOL = 1
RESHARD_F4 = 2
RESHARD_F6_E2M3 = 3
RESHARD_F6_E3M2 = 4
RESHARD_U8 = 5
RESHARD_I8 = 6
RESHARD_F8_E5M2 = 7
RESHARD_F8_E4M3 = 8
RESHARD_F8_E8M0 = 9
RESHARD_F8_E4M3FNUZ = 10
RESHARD_F8_E5M2FNUZ = 11
RESHARD_I16 = 12
RESHARD_U16 = 13
RESHARD_F16 = 14
RESHARD_BF16 = 15
RESHARD_I32 = 16
RESHARD_U32 = 17
RESHARD_F32 = 18
RESHARD_C64 = 19
RESHARD_F64 = 20
RESHARD_I64 = 21
RESHARD_U64 = 22
RESHARD_C128 = 23
RESHARD_SUM = 0
RESHARD_AVG = 1
RESHARD_PROD = 2
RESHARD_MIN = 3
RESHARD_MAX = 4
RESHARD_BAND = 5
RESHARD_BOR = 6
RESHARD_BXOR = 7
RESHARD_HINT_NONE = 0
RESHARD_HINT_SOURCE_MESH = 1
RESHARD_HINT_TARGET_MESH = 2
RESHARD_HINT_SET_KEY = 3
RESHARD_HINT_RULES = 4
RESHARD_HINT_CONFIG = 5
RESHARD_HINT_DTYPE = 6
RESHARD_HINT_EXCLUDE = 7
RESHARD_HINT_PADDING = 8
RESHARD_HINT_RESUME = 9
RESHARD_HINT_FINISH = 10
RESHARD_HINT_DEQUANTIZE = 11
RESHARD_HINT_LIKE = 12
RESHARD_HINT_BLOCK_TYPE = 13
RESHARD_HINT_COUNT = 14
RESHARD_PARTIAL = 1
RESHARD_AT = 2
RESHARD_SHARD = 3
RESHARD_CHUNK = 0
RESHARD_BALANCE_RULE = 0
RESHARD_BALANCE_EXACT = 1
RESHARD_DIFFERENCE_ONLY_IN_A = 1
RESHARD_DIFFERENCE_ONLY_IN_B = 2
RESHARD_DIFFERENCE_DTYPE = 3
RESHARD_DIFFERENCE_SHAPE = 4
RESHARD_DIFFERENCE_BYTES = 5
RESHARD_DRAW_SVG = 1
RESHARD_MOVE_COMBINE = 1
RESHARD_MOVE_FILL = 2
RESHARD_MOVE_ADD = 3

# What specs and files call the dtypes: their numbers, and the bits of an element.
DTYPES = {
    "bool": (RESHARD_BOOL, 8),
    "f4": (RESHARD_F4, 4),
    "f6_e2m3": (RESHARD_F6_E2M3, 6),
    "f6_e3m2": (RESHARD_F6_E3M2, 6),
    "u8": (RESHARD_U8, 8),
    "i8": (RESHARD_I8, 8),
    "f8_e5m2": (RESHARD_F8_E5M2, 8),
    "f8_e4m3": (RESHARD_F8_E4M3, 8),
    "f8_e8m0": (RESHARD_F8_E8M0, 8),
    "f8_e4m3fnuz": (RESHARD_F8_E4M3FNUZ, 8),
    "f8_e5m2fnuz": (RESHARD_F8_E5M2FNUZ, 8),
    "i16": (RESHARD_I16, 16),
    "u16": (RESHARD_U16, 16),
    "f16": (RESHARD_F16, 16),
    "bf16": (RESHARD_BF16, 16),
    "i32": (RESHARD_I32, 32),
    "u32": (RESHARD_U32, 32),
    "f32": (RESHARD_F32, 32),
    "c64": (RESHARD_C64, 64),
    "f64": (RESHARD_F64, 64),
    "i64": (RESHARD_I64, 64),
    "u64": (RESHARD_U64, 64),
    "c128": (RESHARD_C128, 128),
}
REDUCTIONS = {
    "sum": RESHARD_SUM,
    "avg": RESHARD_AVG,
    "prod": RESHARD_PROD,
    "min": RESHARD_MIN,
    "max": RESHARD_MAX,
    "band": RESHARD_BAND,
    "bor": RESHARD_BOR,
    "bxor": RESHARD_BXOR,
}

reshard_rank_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p)


class reshard_error(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("status", c_int32),
        ("hint", c_int),
        ("has_rank", c_int32),
        ("rank", c_int32),
        ("subject", c_char_p),
        ("text", c_char_p),
    ]


class reshard_allocator(Structure):
    _fields_ = [
        ("allocate", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("resize", CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t, c_size_t)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ("user", c_void_p),
    ]


class reshard_context_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("allocator", POINTER(reshard_allocator)),
        ("memory_bytes_max", c_size_t),
        ("log", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("progress", CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64)),
        ("cancelled", CFUNCTYPE(c_int, c_void_p)),
        ("user", c_void_p),
        ("cancel_flag", POINTER(c_int)),
    ]


class reshard_placement(Structure):
    _fields_ = [
        ("kind", c_int),
        ("reduction", c_int),
        ("dim", c_int32),
        ("rule", c_int),
        ("factor", c_int64),
        ("unit", c_int64),
        ("max", c_int64),
        ("count", c_int32),
        ("values", POINTER(c_int64)),
        ("part_max", POINTER(c_int64)),
    ]


class reshard_cut(Structure):
    _fields_ = [
        ("axis", c_int32),
        ("placement", reshard_placement),
    ]


class reshard_box(Structure):
    _fields_ = [
        ("ndim", c_int32),
        ("offset", c_int64 * 8),
        ("size", c_int64 * 8),
    ]


class reshard_piece(Structure):
    _fields_ = [
        ("box", reshard_box),
        ("at", c_int64),
        ("strides", c_int64 * 8),
    ]


class reshard_shard(Structure):
    _fields_ = [
        ("rank", c_int32),
        ("index", c_int32),
        ("ndim", c_int32),
        ("shape", c_int64 * 8),
        ("partial", c_int32),
        ("reduction", c_int),
        ("contributor", c_int32),
        ("contributor_count", c_int32),
        ("divisor", c_int32),
        ("piece_count", c_int64),
        ("pieces", POINTER(reshard_piece)),
        ("offset", c_int64 * 8),
    ]


class reshard_shards(Structure):
    _fields_ = [
        ("count", c_int64),
        ("items", POINTER(reshard_shard)),
    ]


class reshard_trace_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("thread_events_max", c_int64),
    ]


class reshard_checkpoint_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("from", c_char_p),
        ("rules", c_char_p),
        ("set_count", c_int32),
        ("sets", POINTER(c_char_p)),
        ("keep_names", c_int),
        ("unlisted", c_char_p),
        ("padding", c_char_p),
        ("plan_only", c_int),
        ("one_rank", c_int),
        ("config", c_char_p),
        ("unreadable", c_int),
        ("unfinished", c_int),
    ]


class reshard_stored_tensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("name_bytes", c_size_t),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("bytes", c_uint64),
        ("opaque", c_int),
        ("piece_count", c_int64),
        ("copy_count", c_int64),
        ("whole_ndim", c_int32),
        ("whole_shape", POINTER(c_int64)),
        ("whole_offset", POINTER(c_int64)),
        ("whole_spec", c_char_p),
        ("stored_as", c_char_p),
        ("stored_bytes", c_uint64),
        ("is_aside", c_int),
    ]


class reshard_stored_value(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("name_bytes", c_size_t),
        ("text", c_char_p),
        ("type", c_char_p),
        ("item_count", c_int64),
        ("is_json", c_int),
    ]


class reshard_unreadable_tensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("name_bytes", c_size_t),
        ("reason", c_char_p),
    ]


class reshard_stored_piece(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("file", c_int32),
        ("at", c_uint64),
        ("box", reshard_box),
        ("strides", c_int64 * 8),
    ]


class reshard_format(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("description", c_char_p),
        ("reads", c_int),
        ("writes", c_int),
        ("is_split", c_int),
        ("needs_mesh", c_int),
    ]


class reshard_rank_tensor(Structure):
    _fields_ = [
        ("tensor", c_int64),
        ("layout", c_void_p),
        ("dtype", c_int),
        ("shards", POINTER(c_void_p)),
    ]


class reshard_read_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("threads", c_int32),
        ("trace", c_void_p),
        ("values_overflowed", POINTER(c_uint64)),
    ]


class reshard_view_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("as", c_char_p),
        ("map_file", c_char_p),
        ("map_text", c_char_p),
        ("set_count", c_int32),
        ("sets", POINTER(c_char_p)),
        ("dequantize", c_int),
    ]


class reshard_digest_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("threads", c_int32),
        ("check_copies", c_int),
        ("group", c_void_p),
    ]


class reshard_digests(Structure):
    _fields_ = [
        ("count", c_int64),
        ("tensors", POINTER(c_char * 33)),
        ("checkpoint", c_char * 33),
    ]


class reshard_hashes(Structure):
    _fields_ = [
        ("count", c_int64),
        ("tensors", POINTER(c_char * 65)),
        ("lines", c_void_p),
        ("lines_bytes", c_size_t),
        ("checkpoint", c_char * 65),
    ]


class reshard_live_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("layout", c_void_p),
        ("shards", POINTER(c_void_p)),
    ]


class reshard_checkpoint_save_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("no_sync", c_int),
        ("trace", c_void_p),
    ]


class reshard_plan_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("balance", c_int),
        ("relabel", c_int),
        ("single_stage", c_int),
        ("zero_fill", c_int),
        ("staging_bytes_max", c_size_t),
    ]


class reshard_plan_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("bytes_total", c_uint64),
        ("bytes_moved", c_uint64),
        ("bytes_kept", c_uint64),
        ("moves", c_uint64),
        ("records", c_uint64),
        ("bytes_in_max", c_uint64),
        ("bytes_out_max", c_uint64),
        ("staging_bytes_peak", c_uint64),
        ("stages", c_int32),
    ]


class reshard_plan_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("layout", c_void_p),
        ("dtype", c_int),
    ]


class reshard_link(Structure):
    _fields_ = [
        ("source", c_int32),
        ("target", c_int32),
        ("source_box", reshard_box),
        ("target_box", reshard_box),
        ("factor_count", c_int32),
        ("factors", c_int64 * 16),
        ("order", c_int32 * 16),
    ]


class reshard_conversion_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("to", c_char_p),
        ("rules", c_char_p),
        ("set_count", c_int32),
        ("sets", POINTER(c_char_p)),
        ("format", c_char_p),
        ("shard_bytes_max", c_uint64),
        ("dtype_count", c_int32),
        ("dtypes", POINTER(c_char_p)),
        ("include_count", c_int32),
        ("exclude_count", c_int32),
        ("includes", POINTER(c_char_p)),
        ("excludes", POINTER(c_char_p)),
        ("rename_count", c_int32),
        ("renames", POINTER(c_char_p)),
        ("memory_bytes_max", c_size_t),
        ("threads", c_int32),
        ("group", c_void_p),
        ("only", c_char_p),
        ("all", c_int),
        ("dtensors", c_int),
        ("dequantize", c_int),
        ("trace", c_void_p),
        ("no_pad", c_int),
        ("map_file", c_char_p),
        ("map_text", c_char_p),
        ("as", c_char_p),
        ("like", c_char_p),
    ]


class reshard_conversion_run_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("resume", c_int),
        ("verify", c_int),
        ("link", c_int),
        ("no_sync", c_int),
        ("journal_bytes", c_uint64),
    ]


class reshard_conversion_report(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("bytes_read", c_uint64),
        ("bytes_written", c_uint64),
        ("bytes_shared", c_uint64),
        ("bytes_resumed", c_uint64),
        ("bytes_digested", c_uint64),
        ("tensors_digested", c_int64),
        ("source_digest", c_char * 33),
        ("digest", c_char * 33),
        ("bytes_verified", c_uint64),
        ("values_overflowed", c_uint64),
        ("crcs_unchecked", c_int64),
    ]


class reshard_conversion_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("format", c_char_p),
        ("rules", c_char_p),
        ("tensor_count", c_int64),
        ("move_count", c_int64),
        ("source_file_count", c_int32),
        ("target_file_count", c_int32),
        ("written_file_count", c_int32),
        ("bytes_read", c_uint64),
        ("bytes_written", c_uint64),
        ("bytes_shared", c_uint64),
        ("memory_bytes", c_uint64),
        ("threads", c_int32),
        ("ranks", c_int32),
        ("naming", c_char_p),
    ]


class reshard_conversion_tensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("name_bytes", c_size_t),
        ("source", c_int64),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("cut", c_char_p),
        ("rule_file", c_char_p),
        ("rule_line", c_int32),
        ("local_ndim", c_int32),
        ("local_shape", POINTER(c_int64)),
        ("padded_shape", POINTER(c_int64)),
        ("source_count", c_int64),
        ("map_file", c_char_p),
        ("map_line", c_int32),
        ("layout", c_void_p),
        ("link_count", c_int64),
    ]


class reshard_comparison_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("conversion", POINTER(reshard_conversion_options)),
        ("ignore_dropped", c_int),
        ("by_digest", c_int),
        ("threads", c_int32),
        ("group", c_void_p),
        ("measure", c_int),
        ("tolerance", c_double),
        ("tolerance_l2", c_double),
    ]


class reshard_comparison_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("tensors_compared", c_int64),
        ("bytes_compared", c_uint64),
        ("tensors_left_out", c_int64),
        ("tensors_dropped", c_int64),
        ("difference_count", c_int64),
        ("digest_a", c_char * 33),
        ("digest_b", c_char * 33),
        ("tensors_within", c_int64),
        ("tensors_within_dtype", c_int64),
    ]


class reshard_difference(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("name", c_void_p),
        ("name_bytes", c_size_t),
        ("a", c_int64),
        ("b", c_int64),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("element", c_int64 * 8),
        ("value_a", c_char * 64),
        ("value_b", c_char * 64),
        ("measured", c_int),
        ("is_within", c_int),
        ("number_count", c_int64),
        ("numbers_differing", c_int64),
        ("nan_count", c_int64 * 2),
        ("infinite_count", c_int64 * 2),
        ("unlike_count", c_int64),
        ("largest", c_double),
        ("mean", c_double),
        ("relative_l2", c_double),
        ("cosine", c_double),
        ("ndim_a", c_int32),
        ("shape_a", POINTER(c_int64)),
        ("origin_count", c_int64),
        ("origin", c_void_p),
        ("origin_bytes", c_size_t),
        ("origin_ndim", c_int32),
        ("origin_element", c_int64 * 8),
    ]


class reshard_draw_slice(Structure):
    _fields_ = [
        ("dim", c_int32),
        ("index", c_int64),
    ]


class reshard_draw_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("form", c_int),
        ("columns", c_int32),
        ("colours", c_int),
        ("ascii", c_int),
        ("slice_count", c_int32),
        ("slices", POINTER(reshard_draw_slice)),
    ]


class reshard_exec_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("messages_only", c_int),
        ("verify", c_int),
        ("trace", c_void_p),
    ]


class reshard_family(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("text", c_char_p),
        ("summary", c_void_p),
        ("summary_bytes", c_size_t),
    ]


class reshard_naming(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("summary", c_char_p),
    ]


class reshard_stage_link(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("link", c_int32),
        ("source", c_int32),
        ("target", c_int32),
        ("source_is_intermediate", c_int),
        ("target_is_intermediate", c_int),
        ("source_layout", c_void_p),
        ("target_layout", c_void_p),
        ("source_dtype", c_int),
        ("target_dtype", c_int),
    ]


class reshard_move_loop(Structure):
    _fields_ = [
        ("count", c_int64),
        ("peer_step", c_int32),
        ("contributor_step", c_int32),
        ("source_step", c_int64),
        ("target_step", c_int64),
        ("start_steps", POINTER(c_int64)),
    ]


class reshard_move(Structure):
    _fields_ = [
        ("kind", c_int),
        ("source_rank", c_int32),
        ("target_rank", c_int32),
        ("source_shard", c_int32),
        ("target_shard", c_int32),
        ("contributor", c_int32),
        ("contributor_count", c_int32),
        ("reduction", c_int),
        ("divisor", c_int32),
        ("ndim", c_int32),
        ("loop_count", c_int32),
        ("start", POINTER(c_int64)),
        ("size", POINTER(c_int64)),
        ("source_strides", POINTER(c_int64)),
        ("target_strides", POINTER(c_int64)),
        ("source_at", c_int64),
        ("target_at", c_int64),
        ("loops", POINTER(reshard_move_loop)),
    ]


class reshard_moves(Structure):
    _fields_ = [
        ("count", c_int64),
        ("items", POINTER(reshard_move)),
    ]


class reshard_part_moves(Structure):
    _fields_ = [
        ("receives", reshard_moves),
        ("sends", reshard_moves),
        ("keeps", reshard_moves),
    ]


class reshard_stream(Structure):
    _fields_ = [
        ("count", c_int64),
        ("moves", POINTER(reshard_move)),
        ("links", POINTER(c_int32)),
        ("offsets", POINTER(c_uint64)),
    ]


class reshard_request(Structure):
    _fields_ = [
        ("words", c_uint64 * 12),
    ]


class reshard_endpoint(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("rank", c_int32),
        ("rank_count", c_int32),
        ("message_bytes_max", c_size_t),
        ("state", c_void_p),
        ("send", CFUNCTYPE(c_int32, c_void_p, c_int32, c_int32, c_void_p, c_size_t, POINTER(reshard_request))),
        ("receive", CFUNCTYPE(c_int32, c_void_p, c_int32, c_int32, c_void_p, c_size_t, POINTER(reshard_request))),
        ("test", CFUNCTYPE(c_int32, c_void_p, POINTER(reshard_request), POINTER(c_int))),
        ("idle", CFUNCTYPE(None, c_void_p)),
        ("maps_everything", c_int),
        ("map", CFUNCTYPE(c_void_p, c_void_p, c_int32, c_void_p, c_size_t)),
        ("touch", CFUNCTYPE(c_int32, c_void_p, c_int)),
        ("share", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("shares_with", CFUNCTYPE(c_int, c_void_p, c_int32)),
        ("fail", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("quiesce", CFUNCTYPE(None, c_void_p)),
        ("close", CFUNCTYPE(None, c_void_p)),
    ]


# Result and parameters of each.
FUNCTIONS = {
    "reshard_version": lambda: (c_char_p, []),
    "reshard_abi_version": lambda: (c_int32, []),
    "reshard_reduction_name": lambda: (c_char_p, [c_int]),
    "reshard_error_get": lambda: (STATUS, [POINTER(reshard_error)]),
    "reshard_error_put": lambda: (STATUS, [POINTER(reshard_error)]),
    "reshard_error_set": lambda: (STATUS, [c_int32, c_char_p]),
    "reshard_context_create": lambda: (STATUS, [POINTER(reshard_context_options), POINTER(c_void_p)]),
    "reshard_group_run": lambda: (STATUS, [c_void_p, c_int32, reshard_rank_fn, c_void_p]),
    "reshard_group_retain": lambda: (c_void_p, [c_void_p]),
    "reshard_group_release": lambda: (None, [c_void_p]),
    "reshard_group_rank": lambda: (c_int32, [c_void_p]),
    "reshard_group_size": lambda: (c_int32, [c_void_p]),
    "reshard_group_barrier": lambda: (STATUS, [c_void_p]),
    "reshard_group_transport_name": lambda: (c_char_p, [c_void_p]),
    "reshard_group_subset": lambda: (STATUS, [c_void_p, c_int32, POINTER(c_int32), POINTER(c_void_p)]),
    "reshard_group_agree": lambda: (STATUS, [c_void_p, c_int32]),
    "reshard_group_gather_bytes": lambda: (STATUS, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "reshard_group_break": lambda: (None, [c_void_p, c_char_p]),
    "reshard_shape_parse": lambda: (STATUS, [c_char_p, POINTER(c_int32), POINTER(c_int64)]),
    "reshard_spec_parse": lambda: (STATUS, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "reshard_spec_text": lambda: (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "reshard_spec_retain": lambda: (c_void_p, [c_void_p]),
    "reshard_spec_release": lambda: (None, [c_void_p]),
    "reshard_mesh_parse": lambda: (STATUS, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "reshard_mesh_release": lambda: (None, [c_void_p]),
    "reshard_mesh_axis_count": lambda: (c_int32, [c_void_p]),
    "reshard_mesh_size": lambda: (c_int32, [c_void_p]),
    "reshard_mesh_axis_size": lambda: (c_int32, [c_void_p, c_int32]),
    "reshard_mesh_axis_name": lambda: (c_char_p, [c_void_p, c_int32]),
    "reshard_mesh_rank_at": lambda: (c_int32, [c_void_p, c_int32]),
    "reshard_mesh_position_of": lambda: (c_int32, [c_void_p, c_int32]),
    "reshard_spec_mesh": lambda: (c_void_p, [c_void_p]),
    "reshard_spec_cut_count": lambda: (c_int32, [c_void_p]),
    "reshard_spec_cut": lambda: (POINTER(reshard_cut), [c_void_p, c_int32]),
    "reshard_layout_create": lambda: (STATUS, [c_void_p, c_void_p, c_int32, POINTER(c_int64), POINTER(c_void_p)]),
    "reshard_layout_retain": lambda: (c_void_p, [c_void_p]),
    "reshard_layout_release": lambda: (None, [c_void_p]),
    "reshard_layout_ndim": lambda: (c_int32, [c_void_p]),
    "reshard_layout_shape": lambda: (POINTER(c_int64), [c_void_p]),
    "reshard_layout_spec": lambda: (c_void_p, [c_void_p]),
    "reshard_layout_rank_count": lambda: (c_int32, [c_void_p]),
    "reshard_layout_rank_at": lambda: (c_int32, [c_void_p, c_int32]),
    "reshard_layout_equals": lambda: (c_int, [c_void_p, c_void_p]),
    "reshard_layout_shards": lambda: (STATUS, [c_void_p, c_int32, POINTER(POINTER(reshard_shards))]),
    "reshard_layout_all_shards": lambda: (STATUS, [c_void_p, POINTER(POINTER(reshard_shards))]),
    "reshard_shards_destroy": lambda: (None, [POINTER(reshard_shards)]),
    "reshard_trace_create": lambda: (STATUS, [c_void_p, c_void_p, c_char_p, POINTER(reshard_trace_options), POINTER(c_void_p)]),
    "reshard_trace_destroy": lambda: (None, [c_void_p]),
    "reshard_trace_write": lambda: (STATUS, [c_void_p]),
    "reshard_trace_dropped": lambda: (c_uint64, [c_void_p]),
    "reshard_checkpoint_open": lambda: (STATUS, [c_void_p, c_char_p, POINTER(reshard_checkpoint_options), POINTER(c_void_p)]),
    "reshard_checkpoint_destroy": lambda: (None, [c_void_p]),
    "reshard_checkpoint_tensor_count": lambda: (c_int64, [c_void_p]),
    "reshard_checkpoint_tensor": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_stored_tensor)]),
    "reshard_checkpoint_find": lambda: (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(c_int64)]),
    "reshard_checkpoint_read": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_box), c_void_p, c_size_t]),
    "reshard_checkpoint_format": lambda: (c_char_p, [c_void_p]),
    "reshard_checkpoint_bytes": lambda: (c_uint64, [c_void_p]),
    "reshard_checkpoint_disk_file_count": lambda: (c_int32, [c_void_p]),
    "reshard_checkpoint_file_name": lambda: (c_char_p, [c_void_p, c_int32]),
    "reshard_checkpoint_note": lambda: (c_char_p, [c_void_p, c_int64]),
    "reshard_checkpoint_warning": lambda: (c_char_p, [c_void_p, c_int64]),
    "reshard_checkpoint_value": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_stored_value)]),
    "reshard_checkpoint_unreadable": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_unreadable_tensor)]),
    "reshard_checkpoint_piece": lambda: (STATUS, [c_void_p, c_int64, c_int64, POINTER(reshard_stored_piece)]),
    "reshard_checkpoint_layout": lambda: (STATUS, [c_void_p, c_int64, POINTER(c_void_p)]),
    "reshard_format_at": lambda: (STATUS, [c_int32, POINTER(reshard_format)]),
    "reshard_checkpoint_read_rank": lambda: (STATUS, [c_void_p, c_int32, c_int64, POINTER(reshard_rank_tensor), POINTER(reshard_read_options)]),
    "reshard_checkpoint_view": lambda: (STATUS, [c_void_p, POINTER(reshard_view_options), POINTER(c_void_p)]),
    "reshard_checkpoint_digest": lambda: (STATUS, [c_void_p, POINTER(reshard_digest_options), POINTER(POINTER(reshard_digests))]),
    "reshard_digests_destroy": lambda: (None, [POINTER(reshard_digests)]),
    "reshard_checkpoint_hash": lambda: (STATUS, [c_void_p, POINTER(reshard_digest_options), POINTER(POINTER(reshard_hashes))]),
    "reshard_hashes_destroy": lambda: (None, [POINTER(reshard_hashes)]),
    "reshard_checkpoint_map_file": lambda: (STATUS, [c_void_p, c_int32, POINTER(c_void_p), POINTER(c_size_t)]),
    "reshard_checkpoint_unmap_file": lambda: (None, [c_void_p, c_size_t]),
    "reshard_checkpoint_save": lambda: (STATUS, [c_void_p, c_void_p, c_char_p, c_int64, POINTER(reshard_live_tensor), POINTER(reshard_checkpoint_save_options)]),
    "reshard_all_gather": lambda: (STATUS, [c_void_p, c_void_p, c_int, c_int64, POINTER(c_int64), c_void_p, c_void_p]),
    "reshard_reduce_scatter": lambda: (STATUS, [c_void_p, c_void_p, c_int, c_int, c_int64, POINTER(c_int64), c_void_p, c_void_p]),
    "reshard_all_reduce": lambda: (STATUS, [c_void_p, c_void_p, c_int, c_int, c_int64, c_void_p, c_void_p]),
    "reshard_broadcast": lambda: (STATUS, [c_void_p, c_void_p, c_int, c_int32, c_int64, c_void_p, c_void_p]),
    "reshard_all_to_all_single": lambda: (STATUS, [c_void_p, c_void_p, c_int, POINTER(c_int64), POINTER(c_int64), c_void_p, c_void_p]),
    "reshard_send": lambda: (STATUS, [c_void_p, c_void_p, c_int, c_int32, c_int64, c_void_p]),
    "reshard_receive": lambda: (STATUS, [c_void_p, c_void_p, c_int, c_int32, c_int64, c_void_p]),
    "reshard_plan_release": lambda: (None, [c_void_p]),
    "reshard_plan_get_stats": lambda: (STATUS, [c_void_p, POINTER(reshard_plan_stats), POINTER(c_uint64)]),
    "reshard_plan_check": lambda: (STATUS, [c_void_p]),
    "reshard_link_whole": lambda: (reshard_link, [c_int32, c_int32]),
    "reshard_plan_create": lambda: (STATUS, [c_void_p, c_int32, POINTER(reshard_plan_tensor), c_int32, POINTER(reshard_plan_tensor), c_int32, POINTER(reshard_link), POINTER(reshard_plan_options), POINTER(c_void_p)]),
    "reshard_plan_stage_count": lambda: (c_int32, [c_void_p]),
    "reshard_plan_rank_count": lambda: (c_int32, [c_void_p]),
    "reshard_plan_target_layout": lambda: (c_void_p, [c_void_p, c_int32]),
    "reshard_plan_adjoint": lambda: (STATUS, [c_void_p, POINTER(c_void_p)]),
    "reshard_plan_is_adjoint": lambda: (c_int, [c_void_p]),
    "reshard_plan_digest": lambda: (None, [c_void_p, POINTER(c_uint64)]),
    "reshard_conversion_create": lambda: (STATUS, [c_void_p, c_void_p, POINTER(reshard_conversion_options), POINTER(c_void_p)]),
    "reshard_conversion_destroy": lambda: (None, [c_void_p]),
    "reshard_conversion_get_stats": lambda: (STATUS, [c_void_p, POINTER(reshard_conversion_stats)]),
    "reshard_conversion_get_tensor": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_conversion_tensor)]),
    "reshard_conversion_note": lambda: (c_char_p, [c_void_p, c_int64]),
    "reshard_conversion_warning": lambda: (c_char_p, [c_void_p, c_int64]),
    "reshard_conversion_run": lambda: (STATUS, [c_void_p, c_char_p, POINTER(reshard_conversion_run_options), POINTER(reshard_conversion_report)]),
    "reshard_conversion_estimate": lambda: (STATUS, [c_void_p, c_char_p, POINTER(reshard_conversion_run_options), POINTER(c_double)]),
    "reshard_cuts_create": lambda: (STATUS, [c_void_p, POINTER(reshard_conversion_options), POINTER(c_void_p)]),
    "reshard_cuts_destroy": lambda: (None, [c_void_p]),
    "reshard_cuts_tensor_count": lambda: (c_int64, [c_void_p]),
    "reshard_cuts_get_tensor": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_conversion_tensor)]),
    "reshard_cuts_rules": lambda: (c_char_p, [c_void_p]),
    "reshard_conversion_get_matrix": lambda: (None, [c_void_p, POINTER(c_uint64)]),
    "reshard_checkpoint_compare": lambda: (STATUS, [c_void_p, c_void_p, POINTER(reshard_comparison_options), POINTER(c_void_p)]),
    "reshard_comparison_destroy": lambda: (None, [c_void_p]),
    "reshard_comparison_get_stats": lambda: (STATUS, [c_void_p, POINTER(reshard_comparison_stats)]),
    "reshard_comparison_note": lambda: (c_char_p, [c_void_p, c_int64]),
    "reshard_comparison_get_difference": lambda: (STATUS, [c_void_p, c_int64, POINTER(reshard_difference)]),
    "reshard_layout_draw": lambda: (STATUS, [c_void_p, POINTER(reshard_draw_options), c_char_p, c_size_t, POINTER(c_size_t)]),
    "reshard_plan_draw": lambda: (STATUS, [c_void_p, POINTER(reshard_draw_options), c_char_p, c_size_t, POINTER(c_size_t)]),
    "reshard_exec_create": lambda: (STATUS, [c_void_p, c_void_p, c_void_p, POINTER(reshard_exec_options), POINTER(c_void_p)]),
    "reshard_exec_destroy": lambda: (None, [c_void_p]),
    "reshard_exec_start": lambda: (STATUS, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "reshard_exec_wait": lambda: (STATUS, [c_void_p]),
    "reshard_family_at": lambda: (STATUS, [c_int32, POINTER(reshard_family)]),
    "reshard_naming_at": lambda: (STATUS, [c_int32, POINTER(reshard_naming)]),
    "reshard_plan_stage_link_count": lambda: (c_int32, [c_void_p, c_int32]),
    "reshard_plan_stage_link": lambda: (STATUS, [c_void_p, c_int32, c_int32, POINTER(reshard_stage_link)]),
    "reshard_plan_intermediate_count": lambda: (c_int32, [c_void_p]),
    "reshard_plan_intermediate_layout": lambda: (c_void_p, [c_void_p, c_int32]),
    "reshard_move_count": lambda: (c_int64, [POINTER(reshard_move)]),
    "reshard_move_single": lambda: (None, [POINTER(reshard_move), c_int32, c_int64, POINTER(reshard_move), POINTER(c_int64)]),
    "reshard_part_create": lambda: (STATUS, [c_void_p, c_void_p, c_int32, POINTER(c_void_p)]),
    "reshard_part_destroy": lambda: (None, [c_void_p]),
    "reshard_part_link": lambda: (POINTER(reshard_part_moves), [c_void_p, c_int32, c_int32]),
    "reshard_part_text": lambda: (STATUS, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "reshard_stream_create": lambda: (STATUS, [c_void_p, c_int32, c_int32, c_int, POINTER(POINTER(reshard_stream))]),
    "reshard_stream_destroy": lambda: (None, [POINTER(reshard_stream)]),
    "reshard_group_create": lambda: (STATUS, [c_void_p, POINTER(reshard_endpoint), POINTER(c_void_p)]),
}


#: The command's options: keyword, kind, struct, field, commands, meaning.
OPTIONS = (
    ("from_", "MESH", "opening", "from", "CONVERT DIGEST", "the mesh of plain rank files: tp=4"),
    ("from_", "MESH", "opening", "from", "VERIFY", "the mesh of A, if it is plain rank files: tp=4"),
    ("from_b", "MESH", "opening_b", "from", "VERIFY", "the mesh of B, if it is plain rank files"),
    ("rules", "TEXT", "opening", "rules", "DIGEST", "how rank files are split: llama, .. or a file"),
    ("rules", "TEXT", "planning", "rules", "VERIFY", "the rules of the conversion, and of rank files"),
    ("from_rules", "TEXT", "opening", "rules", "CONVERT", "how rank files are split, if not by --rules"),
    ("from_rules", "TEXT", "opening", "rules", "VERIFY", "how the rank files of A are split, if not by --rules"),
    ("rules_b", "TEXT", "opening_b", "rules", "VERIFY", "how the rank files of B are split, if not by --rules"),
    ("set", "PAIRS", "opening", "sets", "VERIFY DIGEST", "a number for rules; overrides config.json"),
    ("set", "PAIRS", "planning", "sets", "VERIFY DIGEST", "a number for rules; overrides config.json"),
    ("set", "PAIRS", "viewing", "sets", "VERIFY DIGEST", "a number for rules; overrides config.json"),
    ("config", "TEXT", "opening", "config", "CONVERT VERIFY DIGEST", "take config.json and tokenizers from this folder"),
    ("unlisted", "TEXT", "opening", "unlisted", "CONVERT VERIFY DIGEST", "tensors and files outside the model (skip)"),
    ("padding", "TEXT", "opening", "padding", "CONVERT VERIFY DIGEST", "what padding may hold (zero)"),
    ("include", "TEXTS", "planning", "includes", "CONVERT", "only these tensors"),
    ("include", "TEXTS", "planning", "includes", "VERIFY", "only these tensors of A"),
    ("exclude", "TEXTS", "planning", "excludes", "CONVERT", "not these tensors"),
    ("exclude", "TEXTS", "planning", "excludes", "VERIFY", "not these tensors of A"),
    ("only", "TEXT", "planning", "only", "CONVERT", "only tensors NAME.*, without that prefix"),
    ("only", "TEXT", "planning", "only", "VERIFY", "only tensors NAME.* of A, without that prefix"),
    ("all", "FLAG", "planning", "all", "CONVERT", "hf: all of a nested source, not just its model"),
    ("dtype", "DTYPES", "planning", "dtypes", "VERIFY", "B was cast: bf16, or *.norm.*=f32"),
    ("rename", "PAIRS", "planning", "renames", "VERIFY", "B has other names: model.*={1}"),
    ("as_", "TEXT", "planning", "as", "VERIFY", "B has this naming: hf, vllm, .. (else recognised)"),
    ("map", "TEXT", "planning", "map_file", "VERIFY", "B was made by this map; --as picks B's side"),
    ("dequantize", "DTYPE", "planning", "dequantize", "VERIFY", "with --as or --map: B was dequantised to bf16, f16 or f32"),
    ("as_", "TEXT", "viewing", "as", "DIGEST", "as under another naming (reshard rules --namings)"),
    ("map", "TEXT", "viewing", "map_file", "DIGEST", "as by a map of one's own; --as picks the side"),
    ("dequantize", "DTYPE", "viewing", "dequantize", "DIGEST", "with --as or --map: fp8 and mxfp4 weights as values"),
    ("ignore_dropped", "FLAG", "comparing", "ignore_dropped", "VERIFY", "ignore tensors that only A has"),
    ("to", "MESH", "planning", "to", "CONVERT", "the mesh to split over: tp=4 or dp=2,tp=4"),
    ("rules", "TEXT", "planning", "rules", "CONVERT", "rules to split by: llama, gpt2, fsdp, .. or a file"),
    ("set", "PAIRS", "opening", "sets", "CONVERT", "a number for rules; overrides config.json"),
    ("set", "PAIRS", "planning", "sets", "CONVERT", "a number for rules; overrides config.json"),
    ("set", "PAIRS", "viewing", "sets", "CONVERT", "a number for rules; overrides config.json"),
    ("no_pad", "FLAG", "planning", "no_pad", "CONVERT", "add no padding, whatever the rules say"),
    ("format", "FORMAT", "planning", "format", "CONVERT", "the format; auto is hf or, with --to, dcp-safetensors"),
    ("max_shard_size", "SIZE", "planning", "shard_bytes_max", "CONVERT", "hf (5GB), vllm: begin another file beyond this"),
    ("dtype", "DTYPES", "planning", "dtypes", "CONVERT", "cast to f16, bf16, f32, f64, f8_e4m3, f8_e5m2; GGUF: q8_0"),
    ("dequantize", "DTYPE", "planning", "dequantize", "CONVERT", "fp8 and mxfp4 weights become values: bf16, f16 or f32"),
    ("dtensor", "FLAG", "planning", "dtensors", "CONVERT", "torch over a mesh: DTensors, not plain local tensors"),
    ("rename", "PAIRS", "planning", "renames", "CONVERT", "new names; {1}, {2}, .. are what the wildcards matched"),
    ("as_", "TEXT", "planning", "as", "CONVERT", "another naming: hf, hf5, .. (reshard rules --namings)"),
    ("like", "TEXT", "planning", "like", "CONVERT", "refuse other names, dtypes and shapes; GGUF: a file to follow"),
    ("map", "TEXT", "planning", "map_file", "CONVERT", "by a map of one's own; --as picks the side to write"),
    ("max_memory", "SIZE", "planning", "memory_bytes_max", "CONVERT", "memory for data in flight (512M; at least 1M)"),
    ("threads", "RANK", "planning", "threads", "CONVERT", "threads (one per processor, up to 8)"),
    ("threads", "RANK", "comparing", "threads", "VERIFY", "threads (one per processor, up to 8)"),
    ("threads", "RANK", "digesting", "threads", "DIGEST", "threads (one per processor, up to 8)"),
    ("digest", "FLAG", "comparing", "by_digest", "VERIFY", "compare digests, not bytes"),
    ("stats", "FLAG", "comparing", "measure", "VERIFY", "how far apart are the tensors that differ"),
    ("tolerance", "TEXTS", "", "tolerances", "VERIFY", "let numbers, or relative L2, be off by at most X"),
    ("sha256", "FLAG", "", "sha256", "DIGEST", "SHA-256 of each tensor's bytes, and of all lines"),
    ("resume", "FLAG", "running", "resume", "CONVERT", "continue an interrupted run"),
    ("verify", "FLAG", "running", "verify", "CONVERT", "read the output back and compare it"),
    ("dry_run", "FLAG", "", "dry_run", "CONVERT", "say what would be done"),
    ("link", "FLAG", "running", "link", "CONVERT", "hard-link files that do not change"),
    ("no_sync", "FLAG", "running", "no_sync", "CONVERT", "do not wait for the disk; for measurements"),
    ("journal_bytes", "SIZE", "running", "journal_bytes", "CONVERT", "sync and record progress every so many bytes (1G)"),
    ("trace", "TEXT", "", "path", "CONVERT", "write a trace for chrome://tracing or Perfetto"),
    ("trace_events", "RANK", "", "events_max", "CONVERT", "events kept for each thread (65536)"),
)


class OpeningOptions(TypedDict, total=False):
    from_: Optional[str]
    rules: Union[None, str, "PathLike[str]"]
    set: Optional[Mapping[str, Any]]
    config: Union[None, str, "PathLike[str]"]
    unlisted: Optional[str]
    padding: Optional[str]


class PlanningOptions(TypedDict, total=False):
    include: Union[str, Sequence[str]]
    exclude: Union[str, Sequence[str]]
    only: Optional[str]
    all: bool
    to: Optional[str]
    rules: Union[None, str, "PathLike[str]"]
    set: Optional[Mapping[str, Any]]
    no_pad: bool
    format: Optional[str]
    max_shard_size: int
    dtype: Any
    dequantize: Any
    dtensor: bool
    rename: Optional[Mapping[str, Any]]
    as_: Optional[str]
    like: Union[None, str, "PathLike[str]"]
    map: Union[None, str, "PathLike[str]"]
    max_memory: int
    threads: int


class RunningOptions(TypedDict, total=False):
    resume: bool
    verify: bool
    link: bool
    no_sync: bool
    journal_bytes: int


class ConvertOptions(PlanningOptions, RunningOptions, total=False):
    from_: Optional[str]
    from_rules: Union[None, str, "PathLike[str]"]
    config: Union[None, str, "PathLike[str]"]
    unlisted: Optional[str]
    padding: Optional[str]
    dry_run: bool
    trace: Any
    trace_events: int


class VerifyOptions(TypedDict, total=False):
    from_: Optional[str]
    from_b: Optional[str]
    rules: Union[None, str, "PathLike[str]"]
    from_rules: Union[None, str, "PathLike[str]"]
    rules_b: Union[None, str, "PathLike[str]"]
    set: Optional[Mapping[str, Any]]
    config: Union[None, str, "PathLike[str]"]
    unlisted: Optional[str]
    padding: Optional[str]
    include: Union[str, Sequence[str]]
    exclude: Union[str, Sequence[str]]
    only: Optional[str]
    dtype: Any
    rename: Optional[Mapping[str, Any]]
    as_: Optional[str]
    map: Union[None, str, "PathLike[str]"]
    dequantize: Any
    ignore_dropped: bool
    threads: int
    digest: bool
    stats: bool
    tolerance: Union[str, Sequence[str]]


class DigestOptions(OpeningOptions, total=False):
    as_: Optional[str]
    map: Union[None, str, "PathLike[str]"]
    dequantize: Any
    threads: int
    sha256: bool
