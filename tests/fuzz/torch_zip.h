/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_zip.h - a zip file as torch.save writes it around a pickle, for fuzz targets: the fuzzer
 * changes the pickle, and need not guess headers and directories.
 */
#ifndef TESTS_FUZZ_TORCH_ZIP_H
#define TESTS_FUZZ_TORCH_ZIP_H

#include <stddef.h>
#include <stdint.h>

/* Storages "0" to "5" have `storage_bytes` bytes each, up to 65,535: "0" the numbers 0, 1, 2, .. of
 * 64 bits, which a mesh may be, the others what `filler` has. */
void fuzz_write_torch(const char *path, const uint8_t *pickle, size_t count, const uint8_t *filler,
                      size_t storage_bytes);

#endif
