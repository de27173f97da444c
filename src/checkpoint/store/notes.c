/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c - a list of lines in an arena. */
#include "checkpoint/store/notes.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

typedef struct rs_note {
    struct rs_note *next;
    char *line;
} rs_note;

#define SHOWN_BYTES 2048

static void write_shown(char out_shown[SHOWN_BYTES], const char *format, va_list arguments)
{
    char line[1024];
    (void)vsnprintf(line, sizeof line, format, arguments);
    (void)reshard_text_escape(line, strlen(line), out_shown, SHOWN_BYTES);
}

static reshard_status append(rs_notes *notes, rs_arena *arena, const char *shown)
{
    rs_note *note = rs_arena_allocate(arena, sizeof *note);
    char *copy = rs_arena_copy(arena, shown, strlen(shown) + 1, 1);
    if (note == NULL || copy == NULL)
        return rs_allocation_status();
    *note = (rs_note){.line = copy};
    if (notes->last != NULL)
        notes->last->next = note;
    else
        notes->first = note;
    notes->last = note;
    return RESHARD_OK;
}

reshard_status rs_notes_add(rs_notes *notes, rs_arena *arena, const char *format, va_list arguments)
{
    char shown[SHOWN_BYTES];
    write_shown(shown, format, arguments);
    return append(notes, arena, shown);
}

reshard_status rs_notes_add_once(rs_notes *notes, rs_arena *arena, const char *format,
                                 va_list arguments)
{
    char shown[SHOWN_BYTES];
    write_shown(shown, format, arguments);
    for (const rs_note *note = notes->first; note != NULL; note = note->next) {
        if (strcmp(note->line, shown) == 0)
            return RESHARD_OK;
    }
    return append(notes, arena, shown);
}

const char *rs_notes_at(const rs_notes *notes, int64_t index)
{
    const rs_note *note = index >= 0 ? notes->first : NULL;
    for (; note != NULL && index > 0; index--)
        note = note->next;
    return note != NULL ? note->line : NULL;
}
