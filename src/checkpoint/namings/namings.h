/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namings.h - the namings of models that this library knows, and the maps between them
 * (docs/maps.md#adding-a-naming).
 *
 * hf is in the middle: every other naming X has maps hf-X, and from X to Y it takes two of them. A
 * naming is a row of the table in namings.c; its maps are files of maps/, which the build embeds.
 */
#ifndef RS_CHECKPOINT_NAMINGS_NAMINGS_H
#define RS_CHECKPOINT_NAMINGS_NAMINGS_H

#include "checkpoint/maps/maps.h"
#include "checkpoint/rules/config.h"
#include "checkpoint/store/store.h"

#define RS_NAMING_SIGNS_MAX 8

typedef struct rs_naming {
    const char *name, *summary;
    /* Globs of names. A checkpoint has this naming if some tensor is like one of `signs`, and none
     * is like one of `others`. Rows are asked in the order of the table. */
    const char *signs[RS_NAMING_SIGNS_MAX], *others[RS_NAMING_SIGNS_MAX];
    /* Other models have its signs under hf's names, too: only types that its maps list count. */
    bool is_by_type;
    /* Globs of names that other namings have as well: a sign only beside a params.json of this
     * naming. */
    const char *shared[RS_NAMING_SIGNS_MAX];
    /* What is written if options do not say: the format without a mesh and over one, and the name
     * of files without number and ending. NULL: as in conversions without a naming. */
    const char *format, *split_format, *stem;
    const char *mesh;  /* what `format` is split over if options give no mesh; NULL: nothing */
    const char *rules; /* the family that cuts its names; NULL: as config.json and names say */
    /* Its names are those of hf, so there is no map; it stands for a format. Names that nobody
     * knows stay as they are. */
    bool has_hf_names;
    bool is_for_training; /* it may hold an optimizer, so all of a nested source is taken */
    bool has_params;      /* its files come with a params.json instead of a config.json */
    bool is_one_file;     /* whole tensors are in one file, unless options limit its size */
    /* A glob of names that its maps should have changed: if some are left, a warning says so. */
    const char *leftovers;
} rs_naming;

/* In the order in which they are asked for signs; ends with an entry without a name. */
extern const rs_naming rs_namings[];

/* Returns NULL if there is none. */
const rs_naming *rs_naming_named(const char *name);
/* The same with an error that lists all. */
reshard_status rs_naming_find(const char *name, const rs_naming **out_naming);
const rs_naming *rs_naming_hf(void);

/* Finds the naming of tensors by their names. model_type: of config.json; dialect: the naming that
 * files beside the tensors speak for; both may be NULL. Errors: NOT_FOUND. */
reshard_status rs_naming_recognise(rs_tensor_name_fn names, void *user, const char *model_type,
                                   const char *dialect, const rs_naming **out_naming);
/* The naming that a params.json beside the checkpoint speaks for, or its format; NULL: none. config
 * is that of the checkpoint. */
reshard_status rs_naming_dialect(const reshard_checkpoint *checkpoint, const rs_config *config,
                                 const char **out_dialect);
/* Finds the first name that is like one of the globs; *out_name is NULL if none is. */
reshard_status rs_naming_match(const char *const *globs, int32_t count, rs_tensor_name_fn names,
                               void *user, const char **out_name, size_t *out_bytes);

/* ---- maps ------------------------------------------------------------------------------------ */

typedef struct rs_shipped_map {
    const char *name, *text; /* "hf-hf5" */
} rs_shipped_map;

/* Ends with an entry without a name. */
extern const rs_shipped_map rs_shipped_maps[];

/* Returns NULL if there is none. */
const rs_shipped_map *rs_shipped_map_named(const char *name);
/* For reshard_map_options: finds what a line `use NAME` asks for. user is not used. */
const char *rs_shipped_map_text(void *user, const char *name, size_t *out_bytes);
/* What stands behind `map` in the line that opens a map: "hf hf5 types a b". Empty if the map has
 * none, and is only used by others. */
rs_slice rs_shipped_map_header(const rs_shipped_map *map);
/* Whether it is between hf and the naming. */
bool rs_shipped_map_leads(const rs_shipped_map *map, const rs_naming *naming);
/* The map between hf and a naming for models of a type: one that lists the type, else one that
 * lists none. model_type may be NULL. Errors: NOT_FOUND, with the types that there are maps for. */
reshard_status rs_shipped_map_choose(const rs_naming *naming, const char *model_type,
                                     const rs_shipped_map **out_map);

#endif
