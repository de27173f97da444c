/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_rules.h - the built-in rules that say how the tensors of a model are cut, and drafts of
 * rules for checkpoints that they do not cover. docs/rules.md describes the language,
 * docs/families.md the families. All calls are Local.
 */
#ifndef RESHARD_MODEL_RULES_H
#define RESHARD_MODEL_RULES_H

#include <reshard/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A built-in set of rules. All texts are static. */
typedef struct reshard_family {
    size_t size;         /* sizeof(reshard_family), set by the caller */
    const char *name;    /* such as "llama", as conversion options take it */
    const char *text;    /* the rules */
    const char *summary; /* the first line of the text; ended by a newline, not by NUL */
    size_t summary_bytes;
} reshard_family;

/* The families that this library has, numbered from 0. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_family_at(int32_t index, reshard_family *out_family);

/*
 * Drafts rules for a checkpoint, as text: the family that fits, and a line for each group of names
 * that the family does not know, with ??? where somebody has to say how they are cut. rules: a
 * family's name, the path of a file, or NULL to choose by config.json or the tensor names. Writes
 * at most `capacity` bytes, including the NUL, and sets *out_length to the length of the whole text
 * without it. Errors: those of the rules and of config.json, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_rules_draft(reshard_context *context,
                                               const reshard_checkpoint *checkpoint,
                                               const char *rules, char *buffer, size_t capacity,
                                               size_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
