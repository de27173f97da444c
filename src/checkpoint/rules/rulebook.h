/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rulebook.h - a mesh, the rules that cut tensors over it, and the numbers that these rules use,
 * all made from the text of the user's options.
 */
#ifndef RS_CHECKPOINT_RULES_RULEBOOK_H
#define RS_CHECKPOINT_RULES_RULEBOOK_H

#include "checkpoint/rules/config.h"
#include "checkpoint/rules/rules.h"
#include "checkpoint/store/store.h"

#define RS_RULES_SAID_BYTES 512

typedef struct rs_rulebook {
    reshard_mesh *mesh; /* without axes that the rules say are over the ranks of others */
    rs_rules *rules;
    rs_config config;
    rs_rules_keys keys;
    /* For the user: which rules these are, why they were chosen, and which of their lines match no
     * tensor. */
    char said[RS_RULES_SAID_BYTES];
    char name[64]; /* of the family, or of the rules file without its folder */
} rs_rulebook;

/* Files are numbered in the order of their ranks. Fills in the rank of each file, and for each
 * position of the mesh the file of its rank. Both arrays have room for all positions. Returns the
 * number of files. */
int32_t rs_mesh_order_files(const reshard_mesh *mesh, int32_t *out_ranks, int32_t *out_files);

/* Keeps a reference to the mesh. rules: a family's name, a path, or NULL to choose a family by the
 * config.json of the model or by the names of the tensors. Release in any case, even
 * after an error. */
reshard_status rs_rulebook_init(rs_rulebook *book, reshard_context *context, reshard_mesh *mesh,
                                const char *rules, const reshard_checkpoint *model,
                                int32_t set_count, const char *const *sets, rs_tensor_name_fn names,
                                void *user);
void rs_rulebook_release(rs_rulebook *book);

#endif
