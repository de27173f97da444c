/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_prediction.h - what `reshard plan --cluster` adds: how long each stage would take, and its
 * bottleneck.
 */
#ifndef CLI_PLAN_PREDICTION_H
#define CLI_PLAN_PREDICTION_H

#include "cli/common/json.h"

#include <reshard/plan.h>
#include <reshard/predict.h>

/* Prints the first line of a prediction. */
void cli_prediction_print_seconds(double seconds);
void cli_prediction_print(const reshard_prediction *prediction, const reshard_plan *plan);
void cli_prediction_write_json(cli_json *json, const reshard_prediction *prediction,
                               const reshard_plan *plan);
/* Records the prediction in the trace and writes its file. Returns CLI_DONE, or another code after
 * a message. */
int cli_prediction_trace(const reshard_prediction *prediction, reshard_plan *plan,
                         const reshard_cluster *cluster, reshard_trace *trace);

#endif
