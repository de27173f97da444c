/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/draw/read_picture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char char_at(const picture_text *picture, int y, int x)
{
    if (y < 0 || y >= picture->line_count || x < 0 || x >= (int)strlen(picture->lines[y]))
        return ' ';
    return picture->lines[y][x];
}

static bool is_border(char c)
{
    return c == '+' || c == '-' || c == '|';
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* The numbers of a line that begin between two places. */
static int read_columns(const picture_text *picture, picture_frame *frame)
{
    int count = 0;
    for (int x = frame->left; x <= frame->right && count < PICTURE_EDGES; x++) {
        if (!isdigit((unsigned char)char_at(picture, frame->top - 1, x)) ||
            isdigit((unsigned char)char_at(picture, frame->top - 1, x - 1)))
            continue;
        frame->columns[count] = strtoll(picture->lines[frame->top - 1] + x, NULL, 10);
        frame->column_places[count++] = x;
    }
    return count;
}

/* The numbers that end one place to the left of the border. */
static int read_rows(const picture_text *picture, picture_frame *frame)
{
    int count = 0;
    for (int y = frame->top; y <= frame->bottom && count < PICTURE_EDGES; y++) {
        int x = frame->left - 2;
        if (!isdigit((unsigned char)char_at(picture, y, x)))
            continue;
        while (isdigit((unsigned char)char_at(picture, y, x - 1)))
            x--;
        frame->rows[count] = strtoll(picture->lines[y] + x, NULL, 10);
        frame->row_lines[count++] = y;
    }
    return count;
}

/* A frame begins where a '+' has nothing above and a '-' to the right, and no border to the
 * left. */
static bool begins_frame(const picture_text *picture, int y, int x)
{
    return char_at(picture, y, x) == '+' && char_at(picture, y, x + 1) == '-' &&
           !is_border(char_at(picture, y, x - 1)) && !is_border(char_at(picture, y - 1, x)) &&
           is_border(char_at(picture, y + 1, x));
}

bool picture_read(char *text, picture_text *picture, words *said)
{
    *picture = (picture_text){0};
    for (char *line = text; *line != '\0' && picture->line_count < PICTURE_LINES;) {
        char *end = strchr(line, '\n');
        if (end == NULL)
            return words_say(said, "the last line has no end");
        *end = '\0';
        picture->lines[picture->line_count++] = line;
        line = end + 1;
    }
    for (int y = 0; y < picture->line_count; y++) {
        for (int x = 0; char_at(picture, y, x) != '\0' && x < (int)strlen(picture->lines[y]); x++) {
            if (!begins_frame(picture, y, x) || picture->frame_count == PICTURE_FRAMES)
                continue;
            picture_frame *frame = &picture->frames[picture->frame_count++];
            *frame = (picture_frame){.left = x, .right = x, .top = y, .bottom = y};
            while (is_border(char_at(picture, y, frame->right + 1)))
                frame->right++;
            while (is_border(char_at(picture, frame->bottom + 1, x)))
                frame->bottom++;
            frame->row_count = read_rows(picture, frame);
            frame->column_count = read_columns(picture, frame);
        }
    }
    return picture->frame_count > 0 || words_say(said, "no frame is found");
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* The place just behind the last edge that is not beyond an index. */
static int place_of(int64_t index, int count, const int64_t *edges, const int *places, int other)
{
    for (int i = count - 1; i >= 0; i--) {
        if (edges[i] <= index)
            return places[i] + 1;
    }
    return other + 1;
}

const char *picture_note(const picture_text *picture, const char *beginning)
{
    for (int y = 0; y < picture->line_count; y++) {
        if (strncmp(picture->lines[y], beginning, strlen(beginning)) == 0)
            return picture->lines[y] + strlen(beginning);
    }
    return NULL;
}

typedef struct flood {
    const picture_text *picture;
    const picture_frame *frame;
    unsigned char seen[PICTURE_LINES][PICTURE_WIDTH];
} flood;

static void spread(flood *state, int y, int x)
{
    if (y <= state->frame->top || y >= state->frame->bottom || x <= state->frame->left ||
        x >= state->frame->right || state->seen[y][x] || is_border(char_at(state->picture, y, x)))
        return;
    state->seen[y][x] = 1;
    spread(state, y - 1, x);
    spread(state, y + 1, x);
    spread(state, y, x - 1);
    spread(state, y, x + 1);
}

/* The one line of a box that says something. */
static bool gather(const flood *state, char label[PICTURE_LABEL], char *out_shade, words *said)
{
    label[0] = '\0';
    *out_shade = ' ';
    for (int y = state->frame->top < 0 ? 0 : state->frame->top; y < state->frame->bottom; y++) {
        char line[PICTURE_WIDTH];
        size_t length = 0;
        for (int x = 0; x < state->frame->right; x++) {
            if (!state->seen[y][x])
                continue;
            char c = char_at(state->picture, y, x);
            if (c == ':' || c == '\'')
                *out_shade = c;
            else if (c != ' ' || length > 0)
                line[length++] = c;
        }
        while (length > 0 && line[length - 1] == ' ')
            length--;
        line[length] = '\0';
        if (length > 0 && label[0] != '\0')
            return words_say(said, "one box says \"%s\" and \"%s\"", label, line);
        if (length > 0)
            strcpy(label, line);
    }
    return label[0] != '\0' || words_say(said, "a box says nothing");
}

bool picture_find(const picture_text *picture, const picture_frame *frame, int64_t row,
                  int64_t column, char label[PICTURE_LABEL], char *out_shade, words *said)
{
    static flood state;
    state.picture = picture;
    state.frame = frame;
    memset(state.seen[frame->top], 0, (size_t)(frame->bottom - frame->top + 1) * PICTURE_WIDTH);
    spread(
        &state, place_of(row, frame->row_count, frame->rows, frame->row_lines, frame->top),
        place_of(column, frame->column_count, frame->columns, frame->column_places, frame->left));
    if (!gather(&state, label, out_shade, said))
        return false;
    if (islower((unsigned char)label[0]) && strchr(label, '(') == NULL) {
        char beginning[64];
        snprintf(beginning, sizeof beginning, "%.40s = ", label);
        const char *meaning = picture_note(picture, beginning);
        if (meaning == NULL)
            return words_say(said, "nothing says what \"%s\" means", label);
        snprintf(label, PICTURE_LABEL, "%s", meaning);
    }
    return true;
}

/* ---- labels ---------------------------------------------------------------------------------- */

int picture_ranks(const char *label, int out[ORACLE_RANKS_MAX], char out_reduction[16])
{
    int group = 0;
    size_t name = strspn(label, "abcdefghijklmnopqrstuvwxyz");
    memset(out, 0, ORACLE_RANKS_MAX * sizeof *out);
    if (name > 15 || (name > 0 && label[name] != '('))
        return -1;
    memcpy(out_reduction, label, name);
    out_reduction[name] = '\0';
    for (const char *at = label + name + (name > 0); *at != '\0' && *at != ')';) {
        char *end;
        long first = strtol(at, &end, 10), last = first, step = 1;
        if (end == at)
            return -1;
        if (strncmp(end, "..", 2) == 0)
            last = strtol(end + 2, &end, 10);
        if (*end == '/')
            step = strtol(end + 1, &end, 10);
        for (long rank = first; rank <= last; rank += step) {
            if (rank < 0 || rank >= ORACLE_RANKS_MAX || out[rank] != 0)
                return -1;
            out[rank] = group + 1;
        }
        group += *end == ';';
        at = end + strspn(end, ",; ");
    }
    return group + 1;
}
