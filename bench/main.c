/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - `reshard-bench`: the measurements that need nothing but libreshard.
 */
#include "bench/commands.h"
#include "bench/common/program.h"

int main(int argc, char **argv)
{
    static const cli_command *const commands[] = {
        &bench_command_plan,  &bench_command_move,      &bench_command_convert,
        &bench_command_model, &bench_command_calibrate, &bench_command_predict,
    };
    return bench_program_run("reshard-bench", commands, sizeof commands / sizeof commands[0], argc,
                             argv);
}
