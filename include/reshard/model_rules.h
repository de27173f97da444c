/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_rules.h - what the library knows about models: the built-in rules that say how their
 * tensors are cut, drafts of rules for checkpoints that they do not cover, and the namings of
 * models with the maps between them. docs/rules.md and docs/maps.md describe the languages,
 * docs/families.md the families. All calls are Local.
 */
#ifndef RESHARD_MODEL_RULES_H
#define RESHARD_MODEL_RULES_H

#include <reshard/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * What can be named in options: families of rules, namings, maps.
 */

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

/* A family by its name, or by a model_type that it is for: "qwen3" finds llama. Wherever options
 * take the name of a family, they take such a type too. Errors: NOT_FOUND, with a text that
 * suggests a similar name. */
RESHARD_API reshard_status reshard_family_find(const char *name, reshard_family *out_family);

/* Does the pattern match the whole name? Patterns are those of rules, and of the options
 * that choose tensors: * ? {a,b} {0..15}. Errors: SYNTAX. */
RESHARD_API reshard_status reshard_pattern_match(const char *pattern, const char *name,
                                                 size_t name_bytes, int *out_matches);

/* ---- namings and maps ------------------------------------------------------------------------ */

/* A naming of models, as conversion options take it (.as). All texts are static. */
typedef struct reshard_naming {
    size_t size;         /* sizeof(reshard_naming), set by the caller */
    const char *name;    /* such as "hf" */
    const char *summary; /* one line */
} reshard_naming;

/* The namings that this library has maps for, numbered from 0. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_naming_at(int32_t index, reshard_naming *out_naming);

/* A map between two namings. All texts are static. */
typedef struct reshard_naming_map {
    size_t size;      /* sizeof(reshard_naming_map), set by the caller */
    const char *name; /* such as "hf-hf5", as a line `use` of another map takes it */
    const char *text; /* for reshard_map_parse */
} reshard_naming_map;

/* The maps that this library has, numbered from 0. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_naming_map_at(int32_t index, reshard_naming_map *out_map);
/* A map by its name, or by the namings it is between: "hf:hf5" is the map for any type of model, or
 * else the first one. Errors: NOT_FOUND, with a list. */
RESHARD_API reshard_status reshard_naming_map_find(const char *name, reshard_naming_map *out_map);

/* Which naming a checkpoint has, judged by the names of its tensors. The text is static. Errors:
 * NOT_FOUND if it is none that the library knows. */
RESHARD_API reshard_status reshard_checkpoint_naming(const reshard_checkpoint *checkpoint,
                                                     const char **out_naming);
/* The map between hf and a naming for the model_type in the checkpoint's config.json. Errors:
 * NOT_FOUND. */
RESHARD_API reshard_status reshard_checkpoint_find_map(const reshard_checkpoint *checkpoint,
                                                       const char *naming,
                                                       reshard_naming_map *out_map);

/* ==== advanced ===================================================================================
 * Texts for somebody to complete, for models that nobody has described yet.
 */

/* ---- drafts ---------------------------------------------------------------------------------- */

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

/*
 * Drafts a map from hf to a naming for a checkpoint, as text: the lines of the map for its type, or
 * else of the one that knows most of its names, as far as they know some; and a line for each group
 * of names that none of them knows, with ??? for what it is called there. Writes at most `capacity`
 * bytes, including the NUL, and sets *out_length to the length of the whole text without it.
 * Errors: NOT_FOUND (no such naming, no map to begin with), UNSUPPORTED (the tensors do not have
 * the names of hf), those of config.json, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_map_draft(reshard_context *context,
                                             const reshard_checkpoint *checkpoint,
                                             const char *naming, char *buffer, size_t capacity,
                                             size_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
