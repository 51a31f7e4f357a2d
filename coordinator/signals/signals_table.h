/* The table of the coordinator's metrics. For coordinator/signals/signals.c alone. */
#pragma once

#include "base/metrics/metrics.h"
#include "coordinator/signals/signals_list.h"

extern const struct metric_family signals_families[SIGNALS];
