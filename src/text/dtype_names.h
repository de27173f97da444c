/* SPDX-License-Identifier: Apache-2.0 */
/* dtype_names.h - names that other software gives to element types (base.h has our own names). */
#ifndef RS_TEXT_DTYPE_NAMES_H
#define RS_TEXT_DTYPE_NAMES_H

#include <reshard/base.h>

/* PyTorch's name, such as "bfloat16"; NULL if PyTorch has no such type. Static. */
const char *rs_dtype_torch_name(reshard_dtype dtype);

#endif
