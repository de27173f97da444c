/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - RS_EXPORT marks the internal functions that libreshard_nn uses. libreshard.so exports
 * them under a version node of their own, RESHARD_PRIVATE_<version> (src/libreshard.map.in); all
 * other rs_ functions are hidden. scripts/mark-exports sets the marks, and a test checks that
 * exactly the functions that are needed have one.
 */
#ifndef RS_BASE_EXPORT_H
#define RS_BASE_EXPORT_H

#define RS_EXPORT __attribute__((visibility("default")))

#endif
