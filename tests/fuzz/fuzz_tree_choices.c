/* Files of Medusa's choices: what is accepted must be a plan within the limits of a round for every
 * K. */
/* ctest: libs=draft */
#include "coordinator/draft/tree_choices.h"

#include <stddef.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tree_choices choices;
    struct error err;
    if (tree_choices_parse(&choices, (const char *)data, size, "fuzz", &err)) return 0;
    demand(choices.n > 0 && choices.n <= TREE_NODES_MAX && choices.parents[0] == -1);
    demand(choices.n_places > 0 && choices.n_places <= DRAFT_MAX);
    for (int i = 1; i < choices.n; i++) {
        demand(choices.parents[i] >= choices.parents[i - 1] && choices.parents[i] < i);
    }
    for (int k = 1; k <= DRAFT_MAX; k++) {
        struct guess_tree plan;
        tree_choices_plan(&choices, k, &plan);
        demand(plan.n_chain == k && plan.n - plan.n_chain <= GROWN_MAX - 1);
        for (int i = 0; i < plan.n; i++) {
            demand(guess_tree_rank(&plan, i) <= SIBLINGS_MAX && guess_tree_depth(&plan, i) <= k);
        }
        guess_tree_sort(&plan);
    }
    return 0;
}
