/* plan_file.h: a plan without the text of its model: of one by way of JSON there is none. */
#ifndef PLAN_FILE_H
#define PLAN_FILE_H

#include "runtime/plan/plan.h"

/* Writes the plan at `path` without that section to `to`. */
static inline bool without_model(const char *path, const char *to)
{
        Plan p = { 0 };
        Err e;
        bool done = !plan_open(&p, path, &e);
        if (done)
                plan_remove(&p, "model");
        done = done && !plan_write(&p, to, &e);
        plan_close(&p);
        return done;
}

#endif
