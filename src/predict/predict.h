/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h - what the files of this folder share. */
#ifndef RS_PREDICT_PREDICT_H
#define RS_PREDICT_PREDICT_H

#include <reshard/predict.h>

/* The cluster for a plan, with the numbers that follow from others filled in. Errors: INVALID. */
reshard_status rs_cluster_read(const reshard_plan *plan, const reshard_cluster *given,
                               reshard_cluster *out_cluster);

#endif
