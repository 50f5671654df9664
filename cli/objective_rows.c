/* objective_rows.c: documents side by side in a row of a batch. */
#include "objective.h"

int row_document(FedRow *r, const uint32_t *id, int n, bool whole)
{
        const int from = r->at, places = whole ? n : n - 1;
        for (int i = 0; i < places; i++, r->at++) {
                r->ids[r->at] = (int)(id[i] & ~RECORD_COUNTS);
                r->targets[r->at] = !whole && id[i + 1] & RECORD_COUNTS
                                            ? (int)(id[i + 1] & ~RECORD_COUNTS)
                                            : -1;
                r->documents[2 * r->at] = from;
                r->documents[2 * r->at + 1] = from + places;
        }
        return from;
}

void row_end(FedRow *r, int pad)
{
        for (const int from = r->at; r->at < r->T; r->at++) {
                r->ids[r->at] = pad;
                r->targets[r->at] = -1;
                r->documents[2 * r->at] = from;
                r->documents[2 * r->at + 1] = r->T;
        }
}
