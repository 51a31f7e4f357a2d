/* The names of the strategies, as users write them. */
#include "speculation/theory/strategy.h"

const char *const strategy_names[N_STRATEGIES] = {"default", "planned", "fixed", "heuristic",
                                                  "threshold"};
