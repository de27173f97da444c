/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.h - turns what the user wrote into objects of the library. All calls return CLI_DONE, or
 * print a message and return another code.
 */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include <reshard/checkpoint.h>
#include <reshard/reshard.h>

typedef struct cli_shape {
    int32_t ndim;
    int64_t extents[RESHARD_NDIM_MAX];
} cli_shape;

int cli_shape_read(const char *argument, cli_shape *out_shape);

/* The argument is a spec's text, or @FILE to read the text from a file, or @- for standard
 * input. */
int cli_spec_read(reshard_context *context, const char *argument, reshard_spec **out_spec);

/* Makes a layout from the argument's spec and the shape. */
int cli_layout_read(reshard_context *context, const char *argument, const cli_shape *shape,
                    reshard_layout **out_layout);

/* What the library says of a layout, a plan or a checkpoint, as a value. */
static inline reshard_layout_info cli_layout_info(const reshard_layout *layout)
{
    reshard_layout_info info = {.size = sizeof info};
    (void)reshard_layout_get_info(layout, &info); /* fails only for a wrong size */
    return info;
}
static inline reshard_plan_info cli_plan_info(const reshard_plan *plan)
{
    reshard_plan_info info = {.size = sizeof info};
    (void)reshard_plan_get_info(plan, &info);
    return info;
}
static inline reshard_checkpoint_info cli_checkpoint_info(const reshard_checkpoint *checkpoint)
{
    reshard_checkpoint_info info = {.size = sizeof info};
    (void)reshard_checkpoint_get_info(checkpoint, &info);
    return info;
}
/* The layout's canonical spec. The caller frees it. */
int cli_layout_text(const reshard_layout *layout, char **out_text);

#define CLI_SHAPE_TEXT 512

/* "10x7", "scalar". Stored tensors may have any number of dims; if there is no room for all, the
 * text ends in "...". Returns `buffer`. */
const char *cli_shape_text(int32_t ndim, const int64_t *extents, char buffer[CLI_SHAPE_TEXT]);

/* How many bytes of a spec's text are shown to a person. */
#define CLI_SPEC_SHOWN 160

/* Shortens a text to CLI_SPEC_SHOWN bytes, ending in "..." if something was left out. Returns
 * `buffer`. */
const char *cli_text_clip(const char *text, char buffer[CLI_SPEC_SHOWN]);

#endif
