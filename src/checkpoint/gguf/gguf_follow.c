/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_follow.c - decides by the donor what a GGUF file will hold: exactly the tensors of the
 * donor, each of its type or of the one that is asked for. Types without blocks are cast by the
 * engine; Q8_0 is encoded while it is read (store/formula.h); blocks that the model has in the same
 * type already are copied as they are.
 */
#include "checkpoint/gguf/gguf_write.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/store/formula.h"
#include "kernel/values/block_types.h"
#include "kernel/values/cast.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define SHOWN 4                            /* names in an error */
#define HELD_BYTES_MAX ((uint64_t)1 << 20) /* of a tensor that is the donor's */
#define TYPE_F32 0
#define HEAD "output.weight"
#define EMBEDDING "token_embd.weight"

/* A type that is written: ggml's number, and that of a file most of which is of this type. */
static const struct written_type {
    const char *name;
    uint32_t type;
    int32_t file_type;
} written_types[] = {
    {"f32", TYPE_F32, 0}, {"f16", 1, 1}, {"bf16", 30, 32}, {"q8_0", RS_BLOCK_Q8_0, 7}};
#define WRITTEN_COUNT (sizeof written_types / sizeof *written_types)

/* A tensor of the donor. */
typedef struct wanted {
    const rs_gguf_tensor *tensor;
    int32_t file;
    int64_t order;
} wanted;

typedef struct following {
    rs_laying *laying;
    rs_arena *arena; /* the target's */
    const reshard_checkpoint *donor;
    int64_t count;
    wanted *wanted;    /* sorted by name */
    rs_selected *made; /* by wanted one */
    rs_gguf_plan *plan;
    int64_t asked;  /* type of all tensors, if possible; -1: the donor's */
    int64_t copied; /* tensors whose blocks are copied */
    int64_t held;   /* tensors that are the donor's */
    bool has_tied;  /* the head is written as a copy of the embedding */
} following;

bool rs_gguf_leaves_tied(rs_slice name)
{
    return rs_slice_equals(name, HEAD);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_wanted(const void *a, const void *b)
{
    return rs_slice_compare(((const wanted *)a)->tensor->name, ((const wanted *)b)->tensor->name);
}

static reshard_status list_wanted(following *f)
{
    int64_t count = 0;
    for (int32_t i = 0; i < f->donor->named_count; i++)
        f->count += ((const rs_gguf *)f->donor->files[i].body)->tensor_count;
    f->wanted = rs_arena_allocate_array(f->arena, (size_t)f->count, sizeof *f->wanted);
    f->made = rs_arena_allocate_array(f->arena, (size_t)f->count, sizeof *f->made);
    f->plan = rs_arena_allocate(f->arena, sizeof *f->plan);
    if (f->wanted == NULL || f->made == NULL || f->plan == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < f->donor->named_count; i++) {
        const rs_gguf *gguf = f->donor->files[i].body;
        for (int64_t k = 0; k < gguf->tensor_count; k++, count++)
            f->wanted[count] = (wanted){&gguf->tensors[k], i, count};
    }
    rs_sort(f->wanted, (size_t)f->count, sizeof *f->wanted, compare_wanted);
    *f->plan = (rs_gguf_plan){.alignment = 0};
    f->plan->infos = rs_arena_allocate_array(f->arena, (size_t)f->count, sizeof *f->plan->infos);
    return f->plan->infos != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Frequencies and factors of rotary embeddings are made of config.json's rope_scaling; they have no
 * name elsewhere, and without them a file loads and computes other numbers. */
static bool is_rotary(rs_slice name)
{
    return rs_slice_equals(name, "rope_freqs.weight") ||
           (name.count > 13 && memcmp(name.bytes, "rope_factors_", 13) == 0);
}

static const rs_selected *find_selected(const following *f, const char *name)
{
    const rs_selection *selection = &f->laying->cuts->selection;
    for (int64_t i = 0; i < selection->count; i++) {
        if (rs_slice_equals(selection->items[i].name, name))
            return &selection->items[i];
    }
    return NULL;
}

/* Does config.json say that the head is not tied? */
static bool is_untied(const following *f)
{
    rs_config *config = &f->laying->cuts->book.config;
    int64_t tied = 0;
    return (rs_config_find(config, "tie_word_embeddings", &tied) ||
            rs_config_find(config, "text_config.tie_word_embeddings", &tied)) &&
           tied == 0;
}

/* Names in an error: how many, and the first ones. */
typedef struct named {
    int64_t count;
    char text[400];
    rs_text words;
} named;

static void add_name(named *list, rs_slice name)
{
    if (list->count++ < SHOWN)
        rs_text_add(&list->words, "%s%.*s", list->count == 1 ? "" : ", ", rs_slice_shown(name),
                    name.bytes);
}

static reshard_status compare_names(const following *f, named *missing, named *surplus)
{
    if (missing->count == 0 && surplus->count == 0)
        return RESHARD_OK;
    char first[500] = "", second[500] = "";
    if (missing->count != 0)
        (void)snprintf(first, sizeof first, "%lld of its tensors would be missing: %s%s",
                       (long long)missing->count, missing->text,
                       missing->count > SHOWN ? ", .." : "");
    if (surplus->count != 0)
        (void)snprintf(second, sizeof second, "it lacks %lld of the model's tensors: %s%s",
                       (long long)surplus->count, surplus->text,
                       surplus->count > SHOWN ? ", .." : "");
    return rs_fail_about(RESHARD_ERR_MISMATCH, f->donor->path, "%s%s%s", first,
                         first[0] != '\0' && second[0] != '\0' ? "; " : "", second);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* Are two shapes the same but for ones in front? ggml does not tell those apart. */
static bool is_alike(int32_t a_ndim, const int64_t *a, int32_t b_ndim, const int64_t *b)
{
    for (; a_ndim > 0 && a[0] == 1; a_ndim--)
        a++;
    for (; b_ndim > 0 && b[0] == 1; b_ndim--)
        b++;
    return a_ndim == b_ndim && memcmp(a, b, (size_t)a_ndim * sizeof *a) == 0;
}

static bool has_ending(rs_slice name, const char *ending)
{
    size_t count = strlen(ending);
    return name.count >= count && memcmp(name.bytes + name.count - count, ending, count) == 0;
}

/* libllama computes with these in F32, and aborts on others. */
static bool stays_f32(const rs_gguf_tensor *tensor)
{
    return tensor->ndim <= 1 || has_ending(tensor->name, ".bias") ||
           has_ending(tensor->name, "_norm.weight") ||
           strstr(tensor->name.bytes, "ffn_gate_inp") != NULL;
}

static const char *type_name(uint32_t type)
{
    const rs_block_type *block = rs_block_type_find(rs_cpu_detect(), type);
    reshard_dtype dtype = rs_gguf_plain_dtype(type);
    return block != NULL                 ? block->name
           : dtype != RESHARD_DTYPE_NONE ? reshard_dtype_name(dtype)
                                         : "?";
}

/* Describes a tensor of bytes: rows of blocks. */
static reshard_status describe_blocks(const following *f, const rs_stored_tensor *values,
                                      rs_slice name, const rs_block_type *type,
                                      rs_stored_tensor **out_made)
{
    size_t ndim = (size_t)values->ndim;
    rs_stored_tensor *made = rs_arena_allocate(f->arena, sizeof *made);
    rs_stored_piece *piece = rs_arena_allocate(f->arena, sizeof *piece);
    int64_t *shape = rs_arena_allocate_array(f->arena, ndim + 1, sizeof *shape);
    if (made == NULL || piece == NULL || shape == NULL)
        return rs_allocation_status();
    memcpy(shape, values->shape, ndim * sizeof *shape);
    shape[ndim - 1] /= type->elements;
    shape[ndim] = type->bytes;
    *made = (rs_stored_tensor){.name = name};
    reshard_status status =
        rs_store_describe(made, f->arena, name, RESHARD_U8, (int32_t)ndim + 1, shape);
    *piece = (rs_stored_piece){.size = made->carried_shape};
    if (values->piece_count != 0) {
        piece->file = values->pieces[0].file; /* decides in which order tensors are read */
        piece->at = values->pieces[0].at;
    }
    made->pieces = piece;
    made->piece_count = 1;
    *out_made = made;
    return status;
}

static reshard_status fail_cast(const rs_selected *item, const char *to)
{
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "tensor \"%.*s\" is %s, which cannot be written as %s",
                   rs_slice_shown(item->name), item->name.bytes,
                   reshard_dtype_name(item->stored->dtype), to);
}

static reshard_status encode(following *f, const rs_block_type *type, rs_selected *item)
{
    const rs_stored_tensor *values = item->stored;
    rs_formula *formula = rs_arena_allocate(f->arena, sizeof *formula);
    rs_stored_tensor *made = NULL;
    if (formula == NULL)
        return rs_allocation_status();
    if (values->opaque ||
        (values->dtype != RESHARD_F32 && !rs_cast_supports(values->dtype, RESHARD_F32)))
        return fail_cast(item, type->name);
    int64_t row = values->ndim > 0 ? values->shape[values->ndim - 1] : 1;
    if (values->ndim == 0 || row % type->elements != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "tensor \"%.*s\": its rows have %lld elements, which is not a multiple of "
                       "the %d in a block of %s",
                       rs_slice_shown(item->name), item->name.bytes, (long long)row,
                       (int)type->elements, type->name);
    reshard_status status = describe_blocks(f, values, item->name, type, &made);
    if (status != RESHARD_OK)
        return status;
    *formula = (rs_formula){.checkpoint = f->laying->source, .values = values, .encoding = type};
    made->formula = formula;
    item->stored = made;
    item->dtype = RESHARD_U8;
    return RESHARD_OK;
}

/* Takes the blocks as they are. */
static reshard_status copy_blocks(following *f, rs_selected *item)
{
    const rs_stored_tensor *values = item->stored;
    rs_stored_tensor *made = NULL;
    reshard_status status = describe_blocks(f, values, item->name, values->block_type, &made);
    if (status != RESHARD_OK)
        return status;
    made->pieces[0].file = values->blocks->file;
    made->pieces[0].at = values->blocks->at;
    item->stored = made;
    item->dtype = RESHARD_U8;
    f->copied++;
    return RESHARD_OK;
}

/* Sums that a map asks for are computed in F32, as the program does that makes such files. */
static reshard_status widen_sum(following *f, rs_selected *item)
{
    const rs_stored_tensor *stored = item->stored;
    bool is_sum = stored->formula != NULL && stored->formula->added != 0;
    if (!is_sum || stored->element_bytes >= (int8_t)sizeof(float))
        return RESHARD_OK;
    rs_stored_tensor *made = rs_arena_allocate(f->arena, sizeof *made);
    if (made == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_store_describe(made, f->arena, stored->name, RESHARD_F32, stored->ndim, stored->shape);
    made->formula = stored->formula;
    made->pieces = stored->pieces;
    made->piece_count = stored->piece_count;
    item->stored = made;
    return status;
}

static reshard_status make_tensor(following *f, uint32_t type, rs_selected *item)
{
    const rs_block_type *block = rs_block_type_find(rs_cpu_detect(), type);
    reshard_dtype dtype = rs_gguf_plain_dtype(type);
    if (block != NULL && item->stored->block_type == block && item->stored->blocks != NULL)
        return copy_blocks(f, item);
    if (block != NULL && block->encode == NULL)
        return rs_fail_hint(RESHARD_ERR_UNSUPPORTED, RESHARD_HINT_BLOCK_TYPE, "",
                            "tensor \"%.*s\" is %s in %.200s, a type that cannot be written; F32, "
                            "F16, BF16 and Q8_0 can",
                            rs_slice_shown(item->name), item->name.bytes, block->name,
                            f->donor->path);
    reshard_status status = widen_sum(f, item);
    if (status != RESHARD_OK)
        return status;
    if (block != NULL)
        return encode(f, block, item);
    if (item->stored->opaque ||
        (item->stored->dtype != dtype && !rs_cast_supports(item->stored->dtype, dtype)))
        return fail_cast(item, reshard_dtype_name(dtype));
    item->dtype = dtype;
    return RESHARD_OK;
}

/* ---- the donor's own tensors ----------------------------------------------------------------- */

static reshard_status hold(following *f, const wanted *from, rs_selected *item)
{
    const rs_gguf_tensor *tensor = from->tensor;
    const rs_file *file = f->donor->files[from->file].file;
    rs_stored_tensor *made = rs_arena_allocate(f->arena, sizeof *made);
    rs_stored_piece *piece = rs_arena_allocate(f->arena, sizeof *piece);
    rs_formula *formula = rs_arena_allocate(f->arena, sizeof *formula);
    char *name = rs_arena_copy(f->arena, tensor->name.bytes, tensor->name.count + 1, 1);
    int64_t *shape =
        rs_arena_copy(f->arena, tensor->shape, (size_t)tensor->ndim, sizeof *tensor->shape);
    if (made == NULL || piece == NULL || formula == NULL || name == NULL || shape == NULL)
        return rs_allocation_status();
    if (tensor->block_type != NULL || tensor->bytes > HELD_BYTES_MAX)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, rs_file_path(file),
                             "tensor \"%s\" would be copied, but is %s of %llu bytes; expected a "
                             "plain type of at most %llu bytes",
                             name, type_name(tensor->type), (unsigned long long)tensor->bytes,
                             (unsigned long long)HELD_BYTES_MAX);
    char *bytes = rs_arena_allocate(f->arena, (size_t)tensor->bytes + 1);
    if (bytes == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_read(file, bytes, (size_t)tensor->bytes, tensor->at);
    *item = (rs_selected){.origin = -1,
                          .stored = made,
                          .dtype = tensor->dtype,
                          .rule = RS_RULE_NONE,
                          .matched = {name, tensor->name.count},
                          .name = {name, tensor->name.count}};
    *made = (rs_stored_tensor){.name = item->name};
    if (status == RESHARD_OK)
        status = rs_store_describe(made, f->arena, item->name, tensor->dtype, tensor->ndim, shape);
    *formula = (rs_formula){.checkpoint = f->laying->source, .held = bytes};
    *piece = (rs_stored_piece){.size = made->carried_shape};
    made->formula = formula;
    made->pieces = piece;
    made->piece_count = 1;
    f->held++;
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static reshard_status fail_shape(const following *f, const rs_gguf_tensor *tensor,
                                 const rs_stored_tensor *found)
{
    char shown[200];
    rs_text text;
    rs_text_init(&text, shown, sizeof shown);
    rs_text_add_shape(&text, tensor->ndim, tensor->shape);
    rs_text_add(&text, " there, and ");
    rs_text_add_shape(&text, found->ndim, found->shape);
    return rs_fail_about(RESHARD_ERR_MISMATCH, f->donor->path,
                         "tensor \"%.*s\" is %s in the model; is it a file of another model?",
                         rs_slice_shown(tensor->name), tensor->name.bytes, shown);
}

/* Makes the tensor that is wanted, of the model's or, if `found` is NULL, of what stands for it.
 * *out_missing: nothing does. */
static reshard_status follow_one(following *f, int64_t index, const rs_selected *found,
                                 bool *out_missing)
{
    const wanted *want = &f->wanted[index];
    const rs_gguf_tensor *tensor = want->tensor;
    rs_selected *item = &f->made[index];
    rs_gguf_info *info = &f->plan->infos[index];
    uint32_t type = f->asked < 0 ? tensor->type : stays_f32(tensor) ? TYPE_F32 : (uint32_t)f->asked;
    *out_missing = false;
    if (is_rotary(tensor->name) && found == NULL) {
        type = tensor->type;
    } else if (found == NULL && rs_slice_equals(tensor->name, HEAD) && !is_untied(f)) {
        found = find_selected(f, EMBEDDING);
        f->has_tied = found != NULL;
    }
    *info = (rs_gguf_info){.order = want->order, .type = type, .ndim = tensor->ndim};
    memcpy(info->shape, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
    if (found == NULL && is_rotary(tensor->name))
        return hold(f, want, item);
    *out_missing = found == NULL;
    if (found == NULL)
        return RESHARD_OK;
    *item = *found;
    item->name = item->matched = (rs_slice){
        rs_arena_copy(f->arena, tensor->name.bytes, tensor->name.count + 1, 1), tensor->name.count};
    if (item->name.bytes == NULL)
        return rs_allocation_status();
    if (!is_alike(tensor->ndim, tensor->shape, found->stored->ndim, found->stored->shape))
        return fail_shape(f, tensor, found->stored);
    return make_tensor(f, type, item);
}

/* Goes through the tensors of both sides, which are sorted by name. */
static reshard_status follow_all(following *f)
{
    const rs_selection *selection = &f->laying->cuts->selection;
    named missing = {.count = 0}, surplus = {.count = 0};
    reshard_status status = RESHARD_OK;
    rs_text_init(&missing.words, missing.text, sizeof missing.text);
    rs_text_init(&surplus.words, surplus.text, sizeof surplus.text);
    for (int64_t i = 0, k = 0; status == RESHARD_OK && (i < f->count || k < selection->count);) {
        int order = i == f->count ? 1
                    : k == selection->count
                        ? -1
                        : rs_slice_compare(f->wanted[i].tensor->name, selection->items[k].name);
        bool is_missing = false;
        if (order > 0)
            add_name(&surplus, selection->items[k].name);
        else
            status = follow_one(f, i, order == 0 ? &selection->items[k] : NULL, &is_missing);
        if (is_missing)
            add_name(&missing, f->wanted[i].tensor->name);
        i += order <= 0;
        k += order >= 0;
    }
    return status == RESHARD_OK ? compare_names(f, &missing, &surplus) : status;
}

/* What general.file_type should be: the type of most bytes; -1: the donor's is true. */
static int32_t find_file_type(const following *f)
{
    uint64_t bytes[WRITTEN_COUNT] = {0}, others = 0;
    size_t most = 0;
    bool changes = false;
    for (int64_t i = 0; i < f->count; i++) {
        const rs_gguf_info *info = &f->plan->infos[i];
        size_t k = 0;
        changes = changes || info->type != f->wanted[i].tensor->type;
        while (k < WRITTEN_COUNT && written_types[k].type != info->type)
            k++;
        *(k < WRITTEN_COUNT ? &bytes[k] : &others) += f->made[i].stored->bytes;
    }
    for (size_t k = 1; k < WRITTEN_COUNT; k++)
        most = bytes[k] > bytes[most] ? k : most;
    return changes && bytes[most] >= others ? written_types[most].file_type : -1;
}

static reshard_status say(const following *f)
{
    rs_target *target = f->laying->target;
    reshard_status status =
        rs_target_say(target, "key-values, names and order of tensors (%lld) are taken from %.200s",
                      (long long)f->count, f->donor->path);
    if (status == RESHARD_OK && f->held != 0)
        status =
            rs_target_say(target, "%lld tensor%s of rotary embeddings %s copied from there",
                          (long long)f->held, f->held == 1 ? "" : "s", f->held == 1 ? "is" : "are");
    if (status == RESHARD_OK && f->copied != 0)
        status = rs_target_say(target, "%lld quantised tensor%s stay%s as %s", (long long)f->copied,
                               f->copied == 1 ? "" : "s", f->copied == 1 ? "s" : "",
                               f->copied == 1 ? "it is" : "they are");
    if (status == RESHARD_OK && f->has_tied)
        status = rs_target_say(target,
                               "the head is tied; \"%s\" is written as a copy of the embedding, "
                               "because %.200s has one",
                               HEAD, f->donor->path);
    return status;
}

static reshard_status read_type(following *f)
{
    const char *type = f->laying->type;
    f->asked = -1;
    if (type == NULL)
        return RESHARD_OK;
    for (size_t i = 0; i < WRITTEN_COUNT; i++) {
        if (strcmp(written_types[i].name, type) == 0)
            f->asked = written_types[i].type;
    }
    if (f->asked >= 0)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_INVALID,
                   "dtype \"%.60s\": GGUF files are written as f32, f16, bf16 or q8_0, or as the "
                   "tensors of the file that is followed",
                   type);
}

reshard_status rs_gguf_follow(rs_laying *laying)
{
    rs_selection *selection = &laying->cuts->selection;
    rs_target *target = laying->target;
    following f = {.laying = laying, .arena = &target->arena, .donor = laying->donor};
    reshard_status status = read_type(&f);
    if (status == RESHARD_OK)
        status = list_wanted(&f);
    if (status == RESHARD_OK)
        status = follow_all(&f);
    if (status == RESHARD_OK)
        status = rs_gguf_take_values(target, laying->donor, find_file_type(&f), f.plan);
    if (status == RESHARD_OK) {
        status = rs_grow(target->context, &selection->items, &selection->room, f.count,
                         sizeof(rs_selected));
    }
    if (status != RESHARD_OK)
        return status;
    memcpy(selection->items, f.made, (size_t)f.count * sizeof *f.made);
    selection->count = f.count;
    target->notes = f.plan;
    return say(&f);
}
