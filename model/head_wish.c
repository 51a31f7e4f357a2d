/* Features, or what a worker makes of them. */
#include "model/head_wish.h"

#include <string.h>

bool head_wish(struct feature_wish *wish, const struct model *head,
               const struct head_reading *reading, const struct projection_key *held)
{
    const struct projection_key own = model_projection(head);
    size_t bytes = (size_t)reading->n * sizeof *reading->boundaries;
    *wish = (struct feature_wish){0};
    if (own.digest && own.digest == held->digest && own.width == held->width) {
        wish->projection =
            (struct feature_projection){.key = own, .n = reading->n, .normed = reading->normed};
        memcpy(wish->projection.boundaries, reading->boundaries, bytes);
        return true;
    }
    wish->n = reading->n;
    wish->normed = reading->normed;
    memcpy(wish->boundaries, reading->boundaries, bytes);
    return false;
}
