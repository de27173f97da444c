/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - what every other header needs: status codes and error texts, contexts, element types.
 *
 * Rules that hold for every call of the library:
 *  - A call that can fail returns reshard_status. Outputs come last, are named out_*, and are set
 *    only on success. On failure, reshard_error_text() says what was wrong, and with which value.
 *  - "Local" calls involve this thread alone. "Collective" calls must be made by all ranks of a
 *    group. Everything in base.h, spec.h, layout.h and plan.h is Local.
 *  - destroy(NULL) and release(NULL) do nothing.
 *  - The library never prints, exits or reads the environment.
 */
#ifndef RESHARD_BASE_H
#define RESHARD_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RESHARD_API __attribute__((visibility("default")))
#else
#define RESHARD_API
#endif

#define RESHARD_VERSION_MAJOR 0
#define RESHARD_VERSION_MINOR 3
#define RESHARD_VERSION_PATCH 0

/* ==== simple =====================================================================================
 * Versions, statuses with their words, and element types: what every program meets.
 */

/* The library's version as text, such as "0.3.0". Static; never NULL. */
RESHARD_API const char *reshard_version(void);

/* The version of the binary interface: if reshard_abi_version() differs from the number a program
 * was compiled with, the program must not call anything else. New calls, and structs that grow at
 * their end, do not change it. */
#define RESHARD_ABI_VERSION 2
RESHARD_API int32_t reshard_abi_version(void);

#define RESHARD_NDIM_MAX 8 /* dimensions of a tensor */

/* ---- status ---------------------------------------------------------------------------------- */

typedef int32_t reshard_status;

/*
 * Names, numbers and texts of all statuses. They are grouped by the largest thing that the error
 * breaks, so that a caller knows what is still usable:
 *   -1 ..  -99  nothing: the call had no effect and every object is as before
 * -100 .. -199  this object: destroy it; others are fine
 * -200 .. -299  the whole group of ranks
 */
#define RESHARD_STATUS_LIST(X)                       \
    X(OK, 0, "success")                              \
    X(ERR_INVALID, -1, "invalid argument")           \
    X(ERR_SYNTAX, -2, "malformed text")              \
    X(ERR_RANGE, -3, "number out of range")          \
    X(ERR_OVERLAP, -4, "shards overlap")             \
    X(ERR_GAP, -5, "elements that nobody owns")      \
    X(ERR_UNSUPPORTED, -6, "not supported")          \
    X(ERR_NOT_FOUND, -7, "not found")                \
    X(ERR_NO_MEMORY, -8, "out of memory")            \
    X(ERR_MEMORY_LIMIT, -9, "memory limit reached")  \
    X(ERR_CANCELLED, -10, "cancelled")               \
    X(ERR_MISMATCH, -11, "ranks do not agree")       \
    X(ERR_UNFINISHED, -12, "left unfinished")        \
    X(ERR_IO, -100, "input or output failed")        \
    X(ERR_CORRUPT, -101, "data are damaged")         \
    X(ERR_CHECK, -102, "a check failed")             \
    X(ERR_GROUP_BROKEN, -200, "the group is broken") \
    X(ERR_TIMEOUT, -201, "a peer did not answer in time")

enum {
#define RESHARD_STATUS_ENUM(name, number, text) RESHARD_##name = (number),
    RESHARD_STATUS_LIST(RESHARD_STATUS_ENUM)
#undef RESHARD_STATUS_ENUM
};

/* The status's name ("RESHARD_ERR_RANGE") and its general text ("number out of range"); for an
 * unknown number, both are "unknown status". Static. */
RESHARD_API const char *reshard_status_name(reshard_status status);
RESHARD_API const char *reshard_status_text(reshard_status status);

/* Describes this thread's last failed call: what was wrong, and with which value. "" if no call has
 * failed yet. Valid until this thread's next failed call. */
RESHARD_API const char *reshard_error_text(void);

/* ---- element types --------------------------------------------------------------------------- */

/* The dtypes of safetensors, in its order, then those that it lacks: name in safetensors, our short
 * name, bits of one element. Numbers begin at 1. */
#define RESHARD_DTYPE_LIST(X)        \
    X(BOOL, "bool", 8)               \
    X(F4, "f4", 4)                   \
    X(F6_E2M3, "f6_e2m3", 6)         \
    X(F6_E3M2, "f6_e3m2", 6)         \
    X(U8, "u8", 8)                   \
    X(I8, "i8", 8)                   \
    X(F8_E5M2, "f8_e5m2", 8)         \
    X(F8_E4M3, "f8_e4m3", 8)         \
    X(F8_E8M0, "f8_e8m0", 8)         \
    X(F8_E4M3FNUZ, "f8_e4m3fnuz", 8) \
    X(F8_E5M2FNUZ, "f8_e5m2fnuz", 8) \
    X(I16, "i16", 16)                \
    X(U16, "u16", 16)                \
    X(F16, "f16", 16)                \
    X(BF16, "bf16", 16)              \
    X(I32, "i32", 32)                \
    X(U32, "u32", 32)                \
    X(F32, "f32", 32)                \
    X(C64, "c64", 64)                \
    X(F64, "f64", 64)                \
    X(I64, "i64", 64)                \
    X(U64, "u64", 64)                \
    X(C128, "c128", 128)

typedef enum reshard_dtype {
    RESHARD_DTYPE_NONE = 0, /* in options: use the default */
#define RESHARD_DTYPE_ENUM(name, text, bits) RESHARD_##name,
    RESHARD_DTYPE_LIST(RESHARD_DTYPE_ENUM) RESHARD_DTYPE_COUNT
#undef RESHARD_DTYPE_ENUM
} reshard_dtype;

/* The short name: "f32" for RESHARD_F32; "?" for a number that is not a dtype. Static. */
RESHARD_API const char *reshard_dtype_name(reshard_dtype dtype);
/* Bits of one element; 0 for a number that is not a dtype. */
RESHARD_API int32_t reshard_dtype_bits(reshard_dtype dtype);
/* Finds a dtype by its short name ("f32") or by its name in safetensors, PyTorch or NumPy ("F32",
 * "torch.float32", "half", "fp8_e4m3", "<f4"), in upper or lower case. Errors:
 * RESHARD_ERR_NOT_FOUND. */
RESHARD_API reshard_status reshard_dtype_parse(const char *name, reshard_dtype *out_dtype);

/* How partial values are combined. The last three are bitwise, for integers and bool. */
#define RESHARD_REDUCTION_LIST(X) \
    X(SUM, "sum")                 \
    X(AVG, "avg")                 \
    X(PROD, "prod")               \
    X(MIN, "min")                 \
    X(MAX, "max")                 \
    X(BAND, "band")               \
    X(BOR, "bor")                 \
    X(BXOR, "bxor")

typedef enum reshard_reduction {
#define RESHARD_REDUCTION_ENUM(name, text) RESHARD_##name,
    RESHARD_REDUCTION_LIST(RESHARD_REDUCTION_ENUM) RESHARD_REDUCTION_COUNT
#undef RESHARD_REDUCTION_ENUM
} reshard_reduction;

/* "sum"; "?" for a number that is not a reduction. Static. */
RESHARD_API const char *reshard_reduction_name(reshard_reduction reduction);

/* ==== explicit ===================================================================================
 * Errors to decide by, and contexts: memory limits, progress, cancelling.
 */

/* ---- errors in fields ------------------------------------------------------------------------ */

/*
 * What would help, where the library knows it: name, number, and name in JSON. Error texts say it
 * in general words; whoever shows them adds how to say it there: an option of a command, an
 * argument of a function.
 *   SOURCE_MESH  the mesh that the source is split over (reshard_checkpoint_options.from) has to be
 *                given, or corrected
 *   TARGET_MESH  the mesh to split over (reshard_conversion_options.to) has to be given
 *   SET_KEY      the rules need a number for the key that is the subject (.sets)
 *   RULES        rules have to be given (.rules)
 *   CONFIG       a folder with config.json (.config), or rules, have to be given
 *   DTYPE        a dtype has to be chosen (.dtypes)
 *   EXCLUDE      tensors can be left out (.excludes); the subject is the one in question
 *   PADDING      padding that is not zero can be allowed (.padding "any")
 *   RESUME       the subject is the output of an interrupted conversion, which can be continued
 *                (reshard_conversion_run_options.resume)
 *   FINISH       the subject is a source that an interrupted conversion left; it has to be finished
 *                first
 *   DEQUANTIZE   quantised weights have to be dequantised, to a dtype to be chosen (.dequantize)
 *   LIKE         a file to follow has to be given (.like)
 *   BLOCK_TYPE   another type of the format has to be chosen (.dtypes), such as q8_0
 *   ONLY         the source is nested; the subject is its part to be taken alone (.only)
 */
#define RESHARD_HINT_LIST(X)         \
    X(NONE, 0, "none")               \
    X(SOURCE_MESH, 1, "source-mesh") \
    X(TARGET_MESH, 2, "target-mesh") \
    X(SET_KEY, 3, "set-key")         \
    X(RULES, 4, "rules")             \
    X(CONFIG, 5, "config")           \
    X(DTYPE, 6, "dtype")             \
    X(EXCLUDE, 7, "exclude")         \
    X(PADDING, 8, "padding")         \
    X(RESUME, 9, "resume")           \
    X(FINISH, 10, "finish")          \
    X(DEQUANTIZE, 11, "dequantize")  \
    X(LIKE, 12, "like")              \
    X(BLOCK_TYPE, 13, "block-type")  \
    X(ONLY, 14, "only")

typedef enum reshard_hint {
#define RESHARD_HINT_ENUM(name, number, text) RESHARD_HINT_##name = (number),
    RESHARD_HINT_LIST(RESHARD_HINT_ENUM)
#undef RESHARD_HINT_ENUM
        RESHARD_HINT_COUNT
} reshard_hint;

/* An error in fields, for programs to decide by; its text is for people, and may change. */
typedef struct reshard_error {
    size_t size; /* sizeof(reshard_error) */
    reshard_status status;
    reshard_hint hint;
    int32_t has_rank;    /* non-zero: a rank of a group failed, and the text names it */
    int32_t rank;        /* that rank */
    const char *subject; /* the file, tensor, key or value that the error is about, unescaped; "" if
                          * the library names none, or if it is too long */
    const char *text;    /* reshard_error_text() */
} reshard_error;

/* Describes this thread's last failed call; set out_error->size first. If no call has failed yet,
 * the status is RESHARD_OK. Subject and text are valid until this thread's next failed call.
 * Errors: INVALID for a size that no release has. Local. */
RESHARD_API reshard_status reshard_error_get(reshard_error *out_error);
/* For rank bodies, transports and bindings: makes this the thread's error, and returns its status.
 * Subject and text are copied, and may be those of reshard_error_get. Zero and NULL are the same as
 * in reshard_error_set. Local. */
RESHARD_API reshard_status reshard_error_put(const reshard_error *error);
/* The same with a status and a text only. */
RESHARD_API reshard_status reshard_error_set(reshard_status status, const char *text);

/* Makes untrusted bytes, such as tensor names, safe to show on one line: control characters,
 * invisible characters, characters that change the direction of text, and bytes that are not UTF-8
 * are written as \x1b, \u202e and the like. Error texts and notes are already escaped. Writes at
 * most `capacity` bytes, including the NUL, and returns the length of the whole text without it;
 * buffer may be NULL if capacity is 0. */
RESHARD_API size_t reshard_text_escape(const char *bytes, size_t count, char *buffer,
                                       size_t capacity);

/* ---- context --------------------------------------------------------------------------------- */

/*
 * A context says where memory comes from and how much of it may be used, who receives log lines and
 * progress reports, and when to stop. Several threads may use a context at once if its callbacks
 * allow it. It must outlive everything made with it. Wherever a call takes a context, NULL means
 * the default one: malloc, no limit, no log.
 */
typedef struct reshard_context reshard_context;

typedef struct reshard_allocator {
    /* Like malloc, realloc and free, but with the old size passed in. Never asked for zero
     * bytes. */
    void *(*allocate)(void *user, size_t bytes);
    void *(*resize)(void *user, void *memory, size_t bytes_old, size_t bytes_new);
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
} reshard_allocator;

typedef struct reshard_context_options {
    size_t size;                        /* sizeof(reshard_context_options) */
    const reshard_allocator *allocator; /* NULL: malloc */
    size_t memory_bytes_max; /* 0: no limit; beyond it calls fail with RESHARD_ERR_MEMORY_LIMIT */
    void (*log)(void *user, const char *line);
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    int (*cancelled)(void *user); /* non-zero: long calls stop with RESHARD_ERR_CANCELLED */
    void *user;                   /* handed to log, progress and cancelled */
    /* Long calls also stop once the value it points to is not zero; a signal handler or another
     * thread may set it at any time. Must outlive the context. May be NULL. */
    const volatile int *cancel_flag;
} reshard_context_options;

/* Local. options NULL: like the default context, but its memory is counted. */
RESHARD_API reshard_status reshard_context_create(const reshard_context_options *options,
                                                  reshard_context **out_context);
RESHARD_API void reshard_context_destroy(reshard_context *context);

typedef struct reshard_memory_info {
    size_t size;       /* sizeof(reshard_memory_info), set by the caller */
    size_t bytes;      /* in use now */
    size_t bytes_peak; /* the most that were in use at one time since the last reset */
    size_t bytes_kept; /* of released tensors, kept for later ones (reshard_context_trim) */
} reshard_memory_info;
/* For programs that watch their memory. Local. The memory of the default context is not counted:
 * zeros for NULL. Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_context_get_memory(const reshard_context *context,
                                                      reshard_memory_info *out_memory);
RESHARD_API void reshard_context_reset_peak(reshard_context *context);

/* A pointer to an options struct with its size set, the given fields, and zero elsewhere, for use
 * in one call:
 *     reshard_linear_create(NULL, 8, 8, RESHARD_OPTIONS(reshard_layer_options, .seed = 1), &m)
 * In C++ it needs C++20, and fields have to be in the order of the struct. */
#ifndef __cplusplus
#define RESHARD_OPTIONS(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#else
extern "C++" {
/* The struct lives to the end of the call that it is made for. */
template <typename options_type>
inline const options_type *reshard_options_pointer(const options_type &options)
{
    return &options;
}
}
#define RESHARD_OPTIONS(type, ...) \
    (reshard_options_pointer(type{.size = sizeof(type), __VA_ARGS__}))
#endif

/* ==== advanced ===================================================================================
 * Memory that is kept between tensors, for programs that measure or share a machine.
 */

/* A context that uses malloc keeps the memory of released large tensors (1 MiB or more) for later
 * ones of the same size, because getting fresh memory takes longer than filling it. Large tensors
 * in use plus kept memory never exceed the most that large tensors have used at one time; kept
 * memory is given back when memory_bytes_max would be exceeded. Trim gives all of it back to
 * malloc. Local, from any thread. The default context (NULL) keeps nothing. */
RESHARD_API void reshard_context_trim(reshard_context *context);

#ifdef __cplusplus
}
#endif
#endif
