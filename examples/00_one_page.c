/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 00_one_page.c - introduces the idea: a whole reshard by hand, without the library. A matrix that
 * four ranks hold by rows is moved so that they hold it by columns. It is plain C, to be read from
 * top to bottom; everything else in reshard grows out of these three steps.
 *
 *   1. Each rank owns a box of the tensor; chunks are ceil(n / ranks) long, the last ones shorter.
 *   2. What one rank has and another wants is the intersection of their boxes.
 *   3. That intersection is a strided copy from one local buffer to the other.
 *
 * What the library adds: any layout on either side (meshes, replicas, partial sums, fused and
 * strided cuts, lists of boxes) and up to eight dims; work only for ranks that overlap, not for all
 * pairs; a single sender if several ranks have a box; a proof that every element arrives once;
 * copies at the speed of memory; ranks that are threads, processes or files; errors instead of
 * overflows; gradients.
 */
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, ROWS = 10, COLUMNS = 7 };

typedef struct box {
    int offset[2], size[2];
} box;

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* The box of one rank if dimension `cut` is divided into chunks; the last ones may be empty. */
static box own_box(int rank, int cut)
{
    box own = {{0, 0}, {ROWS, COLUMNS}};
    int length = own.size[cut], chunk = (length + RANKS - 1) / RANKS;
    own.offset[cut] = smaller(rank * chunk, length);
    own.size[cut] = smaller(chunk, length - own.offset[cut]);
    return own;
}

static box intersect(box a, box b)
{
    box both;
    for (int d = 0; d < 2; d++) {
        int end = smaller(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
        both.offset[d] = a.offset[d] > b.offset[d] ? a.offset[d] : b.offset[d];
        both.size[d] = end > both.offset[d] ? end - both.offset[d] : 0;
    }
    return both;
}

/* The address of element (row, column) of the whole matrix in the buffer of the rank that owns
 * `own`. */
static float *element(float *buffer, box own, int row, int column)
{
    return &buffer[(row - own.offset[0]) * own.size[1] + (column - own.offset[1])];
}

int main(void)
{
    float by_rows[RANKS][ROWS * COLUMNS], by_columns[RANKS][ROWS * COLUMNS];
    for (int rank = 0; rank < RANKS; rank++) {
        box own = own_box(rank, 0);
        for (int i = 0; i < own.size[0] * own.size[1]; i++)
            by_rows[rank][i] = (float)(own.offset[0] * COLUMNS + i);
    }

    int moved = 0, kept = 0;
    for (int source = 0; source < RANKS; source++) {
        for (int target = 0; target < RANKS; target++) {
            box from = own_box(source, 0), to = own_box(target, 1), both = intersect(from, to);
            *(source == target ? &kept : &moved) += both.size[0] * both.size[1];
            for (int i = 0; i < both.size[0]; i++) {
                for (int k = 0; k < both.size[1]; k++) {
                    int row = both.offset[0] + i, column = both.offset[1] + k;
                    *element(by_columns[target], to, row, column) =
                        *element(by_rows[source], from, row, column);
                }
            }
        }
    }

    for (int rank = 0; rank < RANKS; rank++) {
        box own = own_box(rank, 1);
        for (int i = 0; i < own.size[0] * own.size[1]; i++) {
            int row = i / own.size[1], column = own.offset[1] + i % own.size[1];
            if (by_columns[rank][i] != (float)(row * COLUMNS + column))
                return fprintf(stderr, "rank %d: element %d is wrong\n", rank, i), EXIT_FAILURE;
        }
    }
    printf("%d elements moved, %d stayed where they were\n", moved, kept);
    return EXIT_SUCCESS;
}
