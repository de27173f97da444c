/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - RS_EXPORT marks the internal functions that libreshard_nn uses. libreshard.so exports
 * them under a version of their own, RESHARD_PRIVATE_<version> (src/libreshard.map.in); everything
 * else that starts with rs_ is hidden. scripts/mark-exports puts the marks where they belong, and a
 * test holds that these are all that is needed, and no more.
 */
#ifndef RS_BASE_EXPORT_H
#define RS_BASE_EXPORT_H

#define RS_EXPORT __attribute__((visibility("default")))

#endif
