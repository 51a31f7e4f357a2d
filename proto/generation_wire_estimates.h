/* Strategies and estimates of the planner in the messages of generation.proto. For files of proto/
 * only. */
#pragma once

#include "proto/generation.pb-c.h"
#include "proto/generation_wire.h"

/* NULL: scratch is full. */
Outrider__Generation__V1__Estimates *estimates_make(struct arena *scratch,
                                                    const struct estimates *estimates);

Outrider__Generation__V1__TimeTables *times_make(struct arena *scratch,
                                                 const struct time_tables *times);

/* The checks return 0 or ERR_FORMAT with the field's name and value. */

/* msg may be NULL, which means that nothing was measured. */
int estimates_decode(const Outrider__Generation__V1__Estimates *msg, struct estimates *estimates,
                     struct error *err);
int times_decode(const Outrider__Generation__V1__TimeTables *msg, struct time_tables *times,
                 struct error *err);
/* Checks that 0 <= value <= most, and that it is not NaN. */
int estimate_check(float value, float most, const char *field, struct error *err);
/* Checks that value is a strategy. */
int strategy_decode(enum strategy *strategy, int value, struct error *err);
