/* packing.c: packs records into rows of T tokens, by first-fit-decreasing.
 *
 * Records are placed longest first, each into the first row that has room.  This takes at most 11/9
 * of the fewest rows possible.  Only lengths decide, so every epoch has the same slots and rows.
 * An epoch shuffles the records of equal length among their slots, and the order of rows. */
#include <stdlib.h>
#include <string.h>
#include "data.h"

/* Every bit of x reaches every bit of the result. */
uint64_t mix64(uint64_t x)
{
        x += 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        return x ^ x >> 31;
}

/* Fisher and Yates', with numbers by their place: nothing is carried over. */
static void shuffle(int *list, int n, uint64_t key)
{
        for (int i = n - 1; i > 0; i--) {
                const int k = (int)(mix64(key ^ (uint64_t)i) % ((uint64_t)i + 1)), x = list[i];
                list[i] = list[k];
                list[k] = x;
        }
}

/* Records by falling length, in their own order where they are equal. */
static void sort(Packing *p, const int *length, int T, int *count)
{
        memset(count, 0, ((size_t)T + 2) * sizeof *count);
        for (int i = 0; i < p->n; i++)
                count[T - length[i] + 1]++;
        for (int k = 1; k <= T; k++)
                count[k] += count[k - 1];
        for (int i = 0; i < p->n; i++)
                p->sorted[count[T - length[i]]++] = i;
        for (int i = 0; i < p->n; i++)
                p->length[i] = length[p->sorted[i]];
}

/* room[1] is the root of a tree whose leaves are rows; a node has the most room below it. */
static int first_with(const int *room, int leaves, int need)
{
        int i = 1;
        while (i < leaves)
                i = room[2 * i] >= need ? 2 * i : 2 * i + 1;
        return i - leaves;
}

static void take(int *room, int leaves, int row, int places)
{
        int i = row + leaves;
        for (room[i] -= places, i /= 2; i; i /= 2)
                room[i] = room[2 * i] > room[2 * i + 1] ? room[2 * i] : room[2 * i + 1];
}

static void place(Packing *p, int T, bool alone, int *room, int leaves, int *row_of)
{
        for (int i = 1; i < 2 * leaves; i++)
                room[i] = T;
        for (int i = 0; i < p->n; i++) {
                const int row = row_of[i] = alone ? i : first_with(room, leaves, p->length[i]);
                if (!alone)
                        take(room, leaves, row, p->length[i]);
                p->n_rows = row >= p->n_rows ? row + 1 : p->n_rows;
        }
        memset(p->row, 0, ((size_t)p->n + 1) * sizeof *p->row);
        for (int i = 0; i < p->n; i++)
                p->row[row_of[i] + 1]++;
        for (int k = 0; k < p->n_rows; k++)
                p->row[k + 1] += p->row[k];
        memcpy(room, p->row, (size_t)p->n_rows * sizeof *room); /* where the next of a row goes */
        for (int i = 0; i < p->n; i++)
                p->slot[room[row_of[i]]++] = i;
}

int packing_new(Packing *p, const int *length, int n, int T, bool alone, Err *e)
{
        const size_t k = (size_t)n + 1;
        int leaves = 1;
        while (leaves < n)
                leaves *= 2;
        *p = (Packing) { .n = n, .epoch = -1 };
        int **list[] = { &p->length, &p->slot, &p->row, &p->sorted, &p->record, &p->order };
        bool all = true;
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
                all &= (*list[i] = malloc(k * sizeof **list[i])) != NULL;
        int *room = malloc(2 * (size_t)leaves * sizeof *room + sizeof *room),
            *row_of = malloc(k * sizeof *row_of), *count = malloc(((size_t)T + 2) * sizeof *count);
        if (all && room && row_of && count) {
                sort(p, length, T, count);
                place(p, T, alone, room, leaves, row_of);
        }
        free(room);
        free(row_of);
        free(count);
        return all && room && row_of && count
                       ? TGC_OK
                       : err_set(e, TGC_NO_MEMORY, "no memory for the rows of %d records", n);
}

void packing_epoch(Packing *p, uint64_t seed, int64_t epoch)
{
        if (p->epoch == epoch && p->seed == seed)
                return;
        const uint64_t key = mix64(mix64(seed) ^ (uint64_t)epoch);
        memcpy(p->record, p->sorted, (size_t)p->n * sizeof *p->record);
        for (int i = 0, k; i < p->n; i = k) {
                for (k = i + 1; k < p->n && p->length[k] == p->length[i]; k++)
                        ;
                shuffle(p->record + i, k - i, mix64(key + (uint64_t)i));
        }
        for (int i = 0; i < p->n_rows; i++)
                p->order[i] = i;
        shuffle(p->order, p->n_rows, mix64(~key));
        p->epoch = epoch;
        p->seed = seed;
}

void packing_free(Packing *p)
{
        free(p->length);
        free(p->slot);
        free(p->row);
        free(p->sorted);
        free(p->record);
        free(p->order);
        *p = (Packing) { 0 };
}
