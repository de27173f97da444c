/* SPDX-License-Identifier: Apache-2.0 */
/* replace.h - which existing files a command may replace. */
#ifndef CLI_REPLACE_H
#define CLI_REPLACE_H

/* Checks that a file is empty, or begins as the files that the command writes: any other was
 * probably named by mistake. A path that does not exist is fine. `kind` is for the message: "an SVG
 * file". Returns CLI_DONE, or another code after a message. */
int cli_replace_check(const char *path, const char *beginning, const char *kind);

#endif
