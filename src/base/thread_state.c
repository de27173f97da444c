/* SPDX-License-Identifier: Apache-2.0 */
/* thread_state.c - see thread_state.h. A new thread starts with all fields zero. */
#include "base/thread_state.h"

static _Thread_local rs_thread_state state;

rs_thread_state *rs_thread_state_get(void)
{
    return &state;
}
