/* Words for a table of metrics: each of the first three is a row of an array of struct
 * metric_family. For the files that hold such a table. */
#pragma once

#include "base/metrics/metrics.h"

/* The row's index, the name, the help, and what else the row has. */
#define COUNTER(ID, NAME, ...) [ID] = {.name = (NAME), .kind = METRIC_COUNTER, .help = __VA_ARGS__}
#define GAUGE(ID, NAME, ...)   [ID] = {.name = (NAME), .kind = METRIC_GAUGE, .help = __VA_ARGS__}
#define HISTOGRAM(ID, NAME, ...) \
    [ID] = {.name = (NAME), .kind = METRIC_HISTOGRAM, .help = __VA_ARGS__}

/* Bounds of a histogram's buckets: of counts; of microseconds, which are shown as seconds. */
#define SIZES(BOUNDS) .bounds = (BOUNDS), .n_bounds = METRIC_COUNT(BOUNDS)
#define TIMES(BOUNDS) SIZES(BOUNDS), .scale = METRIC_US

/* A label with an array of values. */
#define BY(LABEL, VALUES) \
    .label = (LABEL), .label_values = (VALUES), .n_values = METRIC_COUNT(VALUES)

#define METRIC_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
