/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main_nn.c - `reshard-bench-nn`: the measurements that need libreshard_nn and OpenBLAS.
 */
#include "bench/commands.h"
#include "bench/common/program.h"

int main(int argc, char **argv)
{
    static const cli_command *const commands[] = {&bench_command_redistribute,
                                                  &bench_command_train};
    return bench_program_run("reshard-bench-nn", commands, 2, argc, argv);
}
