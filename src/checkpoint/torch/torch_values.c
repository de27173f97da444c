/* SPDX-License-Identifier: Apache-2.0 */
/* torch_values.c - tables of PyTorch's names, and the checks of what a pickle says about storages
 * and tensors. */
#include "checkpoint/torch/torch_values.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"

#include <string.h>

/* Limit for calls around calls, such as a parameter of a tensor subclass. */
#define WRAPPING_MAX 8
/* How often a view larger than REPEATED_BYTES_MIN may repeat its storage. */
#define REPEATS_MAX 1024
#define REPEATED_BYTES_MIN ((int64_t)1 << 30)

/* ---- dtypes ---------------------------------------------------------------------------------- */

typedef struct dtype_row {
    reshard_dtype dtype; /* NONE: not one of ours */
    const char *name, *storage;
} dtype_row;

static const dtype_row rows[] = {
    {RESHARD_F32, "float32", "FloatStorage"},
    {RESHARD_BF16, "bfloat16", "BFloat16Storage"},
    {RESHARD_F16, "float16", "HalfStorage"},
    {RESHARD_F64, "float64", "DoubleStorage"},
    {RESHARD_I64, "int64", "LongStorage"},
    {RESHARD_I32, "int32", "IntStorage"},
    {RESHARD_I16, "int16", "ShortStorage"},
    {RESHARD_I8, "int8", "CharStorage"},
    {RESHARD_U8, "uint8", "ByteStorage"},
    {RESHARD_BOOL, "bool", "BoolStorage"},
    {RESHARD_C64, "complex64", "ComplexFloatStorage"},
    {RESHARD_C128, "complex128", "ComplexDoubleStorage"},
    {RESHARD_F8_E4M3, "float8_e4m3fn", NULL},
    {RESHARD_F8_E5M2, "float8_e5m2", NULL},
    {RESHARD_F8_E8M0, "float8_e8m0fnu", NULL},
    {RESHARD_F8_E4M3FNUZ, "float8_e4m3fnuz", NULL},
    {RESHARD_F8_E5M2FNUZ, "float8_e5m2fnuz", NULL},
    {RESHARD_U16, "uint16", NULL},
    {RESHARD_U32, "uint32", NULL},
    {RESHARD_U64, "uint64", NULL},
    {RESHARD_F4, "float4_e2m1fn_x2", NULL},
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

static const dtype_row *find_dtype(reshard_dtype dtype)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rows[i].dtype == dtype)
            return &rows[i];
    }
    return NULL;
}

const char *rs_torch_dtype_name(reshard_dtype dtype)
{
    const dtype_row *row = find_dtype(dtype);
    return row != NULL ? row->name : NULL;
}

const char *rs_torch_storage_name(reshard_dtype dtype)
{
    const dtype_row *row = find_dtype(dtype);
    return row != NULL ? row->storage : NULL;
}

reshard_status rs_torch_dtype_parse(rs_slice name, reshard_dtype *out_dtype)
{
    static const char module[] = "torch.";
    size_t skipped = sizeof module - 1;
    if (name.count > skipped && memcmp(name.bytes, module, skipped) == 0)
        name = (rs_slice){name.bytes + skipped, name.count - skipped};
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rs_slice_equals(name, rows[i].name) && rows[i].dtype != RESHARD_DTYPE_NONE) {
            *out_dtype = rows[i].dtype;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "PyTorch's dtype \"%.*s\" is not supported",
                   RS_SHOWN(name));
}

reshard_status rs_torch_dtype_read(const rs_pickle_node *node, reshard_dtype *out_dtype)
{
    if (!rs_pickle_is(node, RS_PICKLE_GLOBAL) || !rs_slice_equals(node->global->module, "torch"))
        return rs_fail(RESHARD_ERR_CORRUPT, "%s where a dtype of torch should be",
                       rs_pickle_kind_text(node));
    return rs_torch_dtype_parse(node->global->name, out_dtype);
}

/* ---- objects --------------------------------------------------------------------------------- */

const rs_pickle_node *rs_torch_state_field(const rs_pickle_node *state, const char *name)
{
    const rs_pickle_node *found = rs_pickle_get(state, name);
    for (size_t i = 0;
         found == NULL && rs_pickle_is(state, RS_PICKLE_TUPLE) && i < rs_pickle_count(state); i++)
        found = rs_pickle_get(rs_pickle_item(state, i), name);
    return found;
}

const rs_pickle_node *rs_torch_field(const rs_pickle_node *node, const char *name, int position)
{
    if (!rs_pickle_is_any_call(node))
        return NULL;
    const rs_pickle_node *found = rs_torch_state_field(node->call->state, name);
    if (found == NULL && position >= 0)
        found = rs_pickle_item(node->call->arguments, (size_t)position);
    return found;
}

const rs_pickle_node *rs_torch_pairs(const rs_pickle_node *node)
{
    if (!rs_pickle_is_call(node, "collections", "OrderedDict") ||
        rs_pickle_count(node->call->arguments) != 1)
        return NULL;
    const rs_pickle_node *list = rs_pickle_item(node->call->arguments, 0);
    bool is_list = rs_pickle_is(list, RS_PICKLE_LIST) || rs_pickle_is(list, RS_PICKLE_TUPLE);
    for (size_t i = 0; is_list && i < rs_pickle_count(list); i++) {
        const rs_pickle_node *pair = rs_pickle_item(list, i);
        is_list = (rs_pickle_is(pair, RS_PICKLE_LIST) || rs_pickle_is(pair, RS_PICKLE_TUPLE)) &&
                  rs_pickle_count(pair) == 2;
    }
    return is_list ? list : NULL;
}

/* ---- numbers --------------------------------------------------------------------------------- */

reshard_status rs_torch_numbers(rs_arena *arena, const rs_pickle_node *node, int32_t *out_count,
                                const int64_t **out_numbers)
{
    if (rs_pickle_is_call(node, "torch", "Size"))
        node = rs_pickle_item(node->call->arguments, 0);
    bool is_row = rs_pickle_is(node, RS_PICKLE_TUPLE) || rs_pickle_is(node, RS_PICKLE_LIST);
    size_t count = rs_pickle_count(node);
    if (!is_row || count > INT32_MAX / 2)
        return rs_fail(RESHARD_ERR_CORRUPT, "%s where a list of sizes should be",
                       rs_pickle_kind_text(node));
    int64_t *numbers = rs_arena_allocate_array(arena, count, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        if (!rs_pickle_int(rs_pickle_item(node, i), &numbers[i]) || numbers[i] < 0)
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "a list of sizes holds something that is not a size");
    }
    *out_count = (int32_t)count;
    *out_numbers = numbers;
    return RESHARD_OK;
}

/* ---- storages -------------------------------------------------------------------------------- */

static reshard_status read_storage_class(const rs_pickle_node *node, rs_torch_storage *storage)
{
    if (!rs_pickle_is(node, RS_PICKLE_GLOBAL))
        return rs_fail(RESHARD_ERR_CORRUPT, "%s where the class of a storage should be",
                       rs_pickle_kind_text(node));
    rs_slice name = node->global->name;
    storage->dtype = RESHARD_DTYPE_NONE;
    storage->element_bytes = 1;
    if (rs_slice_equals(name, "UntypedStorage") || rs_slice_equals(name, "_UntypedStorage"))
        return RESHARD_OK;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rows[i].dtype != RESHARD_DTYPE_NONE && rows[i].storage != NULL &&
            rs_slice_equals(name, rows[i].storage)) {
            storage->dtype = rows[i].dtype;
            storage->element_bytes = reshard_dtype_bits(rows[i].dtype) / 8;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "the storage has class %.*s, which cannot be read",
                   RS_SHOWN(name));
}

/* Reads the view of a legacy file: None, or (key of the view, where it begins, its length). */
static reshard_status read_view(const rs_pickle_node *view, rs_torch_storage *storage)
{
    int64_t size = 0;
    storage->view_at = 0;
    if (view == NULL || rs_pickle_is(view, RS_PICKLE_NONE))
        return RESHARD_OK;
    if (!rs_pickle_int(rs_pickle_item(view, 1), &storage->view_at) ||
        !rs_pickle_int(rs_pickle_item(view, 2), &size) || storage->view_at < 0 || size < 0 ||
        storage->view_at > storage->elements || size > storage->elements - storage->view_at)
        return rs_fail(RESHARD_ERR_CORRUPT, "the view does not lie inside its storage");
    storage->elements = size;
    return RESHARD_OK;
}

reshard_status rs_torch_storage_read(const rs_pickle_node *node, rs_torch_storage *out_storage)
{
    rs_slice kind;
    rs_torch_storage storage = {0};
    int64_t bytes = 0;
    const rs_pickle_node *id = rs_pickle_is(node, RS_PICKLE_PERSISTENT) ? node->id : NULL;
    if (!rs_pickle_is(id, RS_PICKLE_TUPLE) || !rs_pickle_text(rs_pickle_item(id, 0), &kind) ||
        !rs_slice_equals(kind, "storage") || !rs_pickle_text(rs_pickle_item(id, 2), &storage.key) ||
        !rs_pickle_int(rs_pickle_item(id, 4), &storage.elements) || storage.elements < 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "%s where a storage should be",
                       rs_pickle_kind_text(node));
    reshard_status status = read_storage_class(rs_pickle_item(id, 1), &storage);
    if (status == RESHARD_OK)
        status = read_view(rs_pickle_item(id, 5), &storage);
    if (status == RESHARD_OK && (!rs_multiply(storage.elements, storage.element_bytes, &bytes) ||
                                 !rs_multiply(storage.view_at, storage.element_bytes, &bytes)))
        status = rs_fail(RESHARD_ERR_RANGE, "the storage has more than 2^63 bytes");
    if (status == RESHARD_OK)
        *out_storage = storage;
    return status;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static bool names_class(const rs_pickle_node *node, const char *name)
{
    return rs_pickle_is(node, RS_PICKLE_GLOBAL) && rs_slice_equals(node->global->name, name) &&
           rs_slice_begins(node->global->module, "torch.distributed");
}

/* Is it _rebuild_tensor_v2, _rebuild_sparse_tensor, ..? A tensor, or one that is refused by
 * name. */
static bool rebuilds(const rs_pickle_node *callable)
{
    return rs_pickle_is(callable, RS_PICKLE_GLOBAL) &&
           rs_slice_equals(callable->global->module, "torch._utils") &&
           rs_slice_begins(callable->global->name, "_rebuild_");
}

rs_torch_kind rs_torch_kind_of(const rs_pickle_node *node)
{
    if (!rs_pickle_is_any_call(node))
        return RS_TORCH_VALUE;
    const rs_pickle_node *callable = node->call->callable;
    if (names_class(callable, "ShardedTensor"))
        return RS_TORCH_SHARDED;
    if (rebuilds(callable))
        return RS_TORCH_TENSOR;
    if (!rs_pickle_is_global(callable, "torch._tensor", "_rebuild_from_type_v2") &&
        !rs_pickle_is_global(callable, "torch._tensor", "_rebuild_from_type"))
        return RS_TORCH_VALUE;
    const rs_pickle_node *class = rs_pickle_item(node->call->arguments, 1);
    if (names_class(class, "ShardedTensor"))
        return RS_TORCH_SHARDED;
    return names_class(class, "DTensor") ? RS_TORCH_DTENSOR : RS_TORCH_TENSOR;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Refuses tensors with lazily pending operations on their values, such as {"conj": True}. */
static reshard_status check_pending(const rs_pickle_node *metadata)
{
    const rs_pickle_node *dict = rs_pickle_dict(metadata);
    for (size_t i = 0; i < rs_pickle_count(dict); i++) {
        const rs_pickle_node *value = dict->items.nodes[2 * i + 1];
        if (rs_pickle_is(value, RS_PICKLE_BOOL) && value->truth)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "its values would have to be conjugated or negated while loading, which "
                           "is not supported");
    }
    return RESHARD_OK;
}

/* Finds where the elements lie in the storage, and checks that it holds all of them. */
static reshard_status place(rs_torch_tensor *tensor, int64_t offset, const int64_t *strides)
{
    const rs_torch_storage *storage = &tensor->storage;
    int64_t bits = reshard_dtype_bits(tensor->dtype), each = bits < 8 ? 1 : bits / 8;
    int64_t last = offset, end = 0, begin = 0, view_bytes = 0;
    bool fits = true, is_empty = false;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        int64_t reach = 0;
        is_empty = is_empty || tensor->shape[d] == 0;
        fits = fits &&
               (tensor->shape[d] == 0 || (rs_multiply(tensor->shape[d] - 1, strides[d], &reach) &&
                                          rs_add(last, reach, &last)));
    }
    fits = fits && rs_add(last, is_empty ? 0 : 1, &end) && rs_multiply(end, each, &end) &&
           rs_multiply(offset, each, &begin) &&
           rs_multiply(storage->elements, storage->element_bytes, &view_bytes);
    if (!fits || (!is_empty && end > view_bytes))
        return rs_fail(RESHARD_ERR_CORRUPT, "its elements reach beyond its storage \"%.*s\"",
                       RS_SHOWN(storage->key));
    uint64_t view = (uint64_t)(storage->view_at * storage->element_bytes);
    tensor->at = is_empty ? 0 : view + (uint64_t)begin; /* each below 2^63 */
    if (!is_empty && !rs_strides_are_dense(tensor->ndim, tensor->shape, strides))
        tensor->strides = strides;
    return RESHARD_OK;
}

/* With strides of 0 a view can repeat its elements, so a few bytes can stand for any number of
 * them. A large tensor that does little else is not part of a model. */
static reshard_status check_repeats(const rs_torch_tensor *tensor)
{
    const rs_torch_storage *storage = &tensor->storage;
    if (tensor->strides == NULL)
        return RESHARD_OK;
    int64_t bytes = 0, stored = storage->elements * storage->element_bytes;
    if (!rs_multiply(rs_volume(tensor->ndim, tensor->shape), reshard_dtype_bits(tensor->dtype) / 8,
                     &bytes))
        return rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    if (bytes <= REPEATED_BYTES_MIN || bytes / REPEATS_MAX <= stored)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE,
                   "has %lld bytes, which repeat the %lld of its storage \"%.*s\": more than %d "
                   "times is refused",
                   (long long)bytes, (long long)stored, RS_SHOWN(storage->key), REPEATS_MAX);
}

/* torch counts pairs of 4-bit elements; we count elements. */
static reshard_status unpack_pairs(rs_arena *arena, rs_torch_tensor *tensor)
{
    if (tensor->dtype != RESHARD_F4)
        return RESHARD_OK;
    if (tensor->ndim == 0 || tensor->strides != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its elements of 4 bits are not stored row by row");
    int64_t *shape = rs_arena_copy(arena, tensor->shape, (size_t)tensor->ndim, sizeof(int64_t));
    if (shape == NULL)
        return rs_allocation_status();
    if (!rs_multiply(shape[tensor->ndim - 1], 2, &shape[tensor->ndim - 1]))
        return rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    tensor->shape = shape;
    return RESHARD_OK;
}

/* Reads the arguments (storage, offset, size, strides, ..). */
static reshard_status read_dense(rs_arena *arena, const rs_pickle_node *arguments,
                                 const rs_pickle_node *dtype, const rs_pickle_node *metadata,
                                 rs_torch_tensor *tensor)
{
    int64_t offset = 0;
    int32_t stride_count = 0;
    const int64_t *strides = NULL;
    reshard_status status = rs_torch_storage_read(rs_pickle_item(arguments, 0), &tensor->storage);
    tensor->dtype = tensor->storage.dtype;
    if (status == RESHARD_OK && dtype != NULL)
        status = rs_torch_dtype_read(dtype, &tensor->dtype);
    if (status == RESHARD_OK && tensor->dtype == RESHARD_DTYPE_NONE)
        status = rs_fail(RESHARD_ERR_CORRUPT, "nothing says which dtype it has");
    if (status == RESHARD_OK &&
        (!rs_pickle_int(rs_pickle_item(arguments, 1), &offset) || offset < 0))
        status =
            rs_fail(RESHARD_ERR_CORRUPT, "its offset in its storage is not a number, or negative");
    if (status == RESHARD_OK)
        status =
            rs_torch_numbers(arena, rs_pickle_item(arguments, 2), &tensor->ndim, &tensor->shape);
    if (status == RESHARD_OK)
        status = rs_torch_numbers(arena, rs_pickle_item(arguments, 3), &stride_count, &strides);
    if (status == RESHARD_OK && stride_count != tensor->ndim)
        status = rs_fail(RESHARD_ERR_CORRUPT, "it has %d sizes, but %d strides", (int)tensor->ndim,
                         (int)stride_count);
    if (status == RESHARD_OK)
        status = check_pending(metadata);
    if (status == RESHARD_OK)
        status = place(tensor, offset, strides);
    if (status == RESHARD_OK)
        status = unpack_pairs(arena, tensor);
    if (status == RESHARD_OK && !rs_shape_fits(tensor->ndim, tensor->shape))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    return status == RESHARD_OK ? check_repeats(tensor) : status;
}

/* Refuses a tensor that is made by another function than those of dense tensors. */
static reshard_status fail_kind(const rs_pickle_global *maker)
{
    const char *what = rs_slice_begins(maker->name, "_rebuild_sparse") ? "is sparse"
                       : rs_slice_equals(maker->name, "_rebuild_qtensor")
                           ? "is quantised by PyTorch"
                           : "is not dense";
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "%s (%.*s.%.*s); only dense tensors can be read", what,
                   RS_SHOWN(maker->module), RS_SHOWN(maker->name));
}

reshard_status rs_torch_tensor_read(rs_arena *arena, const rs_pickle_node *node,
                                    rs_torch_tensor *out_tensor)
{
    rs_torch_tensor tensor = {0};
    reshard_status status = RESHARD_ERR_CORRUPT;
    const rs_pickle_node *callable = NULL, *arguments = NULL;
    for (int i = 0; i < WRAPPING_MAX && rs_torch_kind_of(node) == RS_TORCH_TENSOR; i++) {
        callable = node->call->callable;
        arguments = node->call->arguments;
        /* a subclass: its arguments contain a function and that function's arguments */
        if (!rebuilds(callable)) {
            callable = rs_pickle_item(arguments, 0);
            arguments = rs_pickle_item(arguments, 2);
        }
        if (!rs_pickle_is_global(callable, "torch._utils", "_rebuild_parameter") &&
            !rs_pickle_is_global(callable, "torch._utils", "_rebuild_parameter_with_state"))
            break;
        node = rs_pickle_item(arguments, 0);
        callable = NULL;
    }
    if (rs_pickle_is_global(callable, "torch._utils", "_rebuild_tensor_v2"))
        status = read_dense(arena, arguments, NULL, rs_pickle_item(arguments, 6), &tensor);
    else if (rs_pickle_is_global(callable, "torch._utils", "_rebuild_tensor"))
        status = read_dense(arena, arguments, NULL, NULL, &tensor);
    else if (rs_pickle_is_global(callable, "torch._utils", "_rebuild_tensor_v3"))
        status = read_dense(arena, arguments, rs_pickle_item(arguments, 6),
                            rs_pickle_item(arguments, 7), &tensor);
    else if (rs_pickle_is(callable, RS_PICKLE_GLOBAL))
        status = fail_kind(callable->global);
    else
        status =
            rs_fail(RESHARD_ERR_CORRUPT, "%s where a tensor should be", rs_pickle_kind_text(node));
    if (status == RESHARD_OK)
        *out_tensor = tensor;
    return status;
}

/* ---- globals --------------------------------------------------------------------------------- */

/* Names of PyTorch that only describe data. Other functions (torch.load, torch.hub) do things, and
 * a pickle that names them is worth a look. */
static bool is_known_torch(rs_slice module, rs_slice name)
{
    static const char *const modules[] = {"torch.distributed.", "torch.nn.modules.",
                                          "torch.nn.parameter", "torch.optim.",
                                          "torch.storage",      "torch._C._distributed"};
    if (rs_slice_equals(module, "torch._utils") || rs_slice_equals(module, "torch._tensor"))
        return rs_slice_begins(name, "_rebuild_");
    if (rs_slice_equals(module, "torch.serialization"))
        return rs_slice_equals(name, "_get_layout");
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        if (rs_slice_begins(module, modules[i]))
            return true;
    }
    bool is_known = rs_slice_equals(name, "Size") || rs_slice_equals(name, "device") ||
                    rs_slice_equals(name, "Tensor");
    for (size_t i = 0; i < ROW_COUNT; i++)
        is_known = is_known || rs_slice_equals(name, rows[i].name) ||
                   (rows[i].storage != NULL && rs_slice_equals(name, rows[i].storage));
    return is_known && rs_slice_equals(module, "torch");
}

bool rs_torch_global_is_known(const rs_pickle_global *global)
{
    static const char *const numpy[] = {"dtype", "ndarray", "scalar", "_reconstruct"};
    static const char *const known[][2] = {
        {"collections", "OrderedDict"},
        {"collections", "defaultdict"},
        {"collections", "Counter"},
        {"_codecs", "encode"},
        {"argparse", "Namespace"},
        {"pathlib", "PosixPath"},
        {"pathlib._local", "PosixPath"},
        {"copyreg", "_reconstructor"},
        {"copy_reg", "_reconstructor"},
        {"datetime", "timedelta"},
        {"deepspeed.runtime.zero.config", "ZeroStageEnum"},
        {"deepspeed.runtime.fp16.loss_scaler", "LossScaler"},
        {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"},
        {"deepspeed.utils.tensor_fragment", "fragment_address"},
    };
    static const char *const builtins[] = {"set",    "frozenset", "bytearray", "complex", "dict",
                                           "list",   "tuple",     "object",    "slice",   "range",
                                           "int",    "float",     "bool",      "str",     "bytes",
                                           "getattr" /* how protocol 2 writes a class inside a class; it needs another name to do harm */};
    rs_slice module = global->module, name = global->name;
    if (rs_slice_equals(module, "torch") || rs_slice_begins(module, "torch."))
        return is_known_torch(module, name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (rs_slice_equals(module, known[i][0]) && rs_slice_equals(name, known[i][1]))
            return true;
    }
    bool is_numpy = rs_slice_equals(module, "numpy") || rs_slice_begins(module, "numpy.core.") ||
                    rs_slice_begins(module, "numpy._core.") ||
                    rs_slice_equals(module, "numpy.dtypes");
    for (size_t i = 0; is_numpy && i < sizeof numpy / sizeof *numpy; i++) {
        if (rs_slice_equals(name, numpy[i]))
            return true;
    }
    bool is_builtin = rs_slice_equals(module, "builtins") || rs_slice_equals(module, "__builtin__");
    for (size_t i = 0; is_builtin && i < sizeof builtins / sizeof *builtins; i++) {
        if (rs_slice_equals(name, builtins[i]))
            return true;
    }
    return false;
}
