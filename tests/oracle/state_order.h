/* SPDX-License-Identifier: Apache-2.0 */
/* state_order.h - made by state_order.py with PyTorch; do not edit. */
/* clang-format off */
static const char oracle_state[] = "w v mean count z.w z.v z.mean z.count z.y.w z.y.v z.y.mean z.y.count a.w a.v a.mean a.count ";
static const char oracle_parameters[] = "w v z.w z.v z.y.w z.y.v a.v ";
static const char oracle_buffers[] = "mean cache count z.mean z.cache z.count z.y.mean z.y.cache z.y.count a.mean a.cache a.count ";
