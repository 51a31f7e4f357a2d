/* One counter, which never exceeds the limit. */
#include "base/budget.h"

#include <assert.h>
#include <stdbool.h>

void budget_init(struct budget *budget, size_t limit_bytes, const char *option)
{
    atomic_init(&budget->used_bytes, 0);
    budget->limit_bytes = limit_bytes;
    budget->option = option;
}

int budget_take(struct budget *budget, size_t bytes, struct error *err)
{
    size_t used = atomic_load(&budget->used_bytes);
    if (bytes > budget->limit_bytes) {
        return error_set(err, ERR_ARGUMENT,
                         "the request would occupy %zu bytes, more than the %zu of %s for all",
                         bytes, budget->limit_bytes, budget->option);
    }
    do {
        if (bytes > budget->limit_bytes - used) {
            return error_set(err, ERR_EXHAUSTED,
                             "requests that wait occupy %zu bytes, and %zu more would exceed the "
                             "%zu of %s; try again later",
                             used, bytes, budget->limit_bytes, budget->option);
        }
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &used, used + bytes));
    return 0;
}

void budget_give(struct budget *budget, size_t bytes)
{
    size_t before = atomic_fetch_sub(&budget->used_bytes, bytes);
    assert(before >= bytes);
    (void)before;
}

size_t budget_used(struct budget *budget)
{
    return atomic_load(&budget->used_bytes);
}
