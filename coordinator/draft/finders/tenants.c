/* Numbers of tenants. A number is never given to another tenant, so what is kept under it stays
 * unseen when its key is withdrawn. */
#include "coordinator/draft/finders/tenants.h"

#include <stdlib.h>

#include "access/keys.h"
#include "coordinator/sequence/sequence.h"

void tenants_free(struct tenants *t)
{
    for (size_t i = 0; i < t->n; i++) {
        grant_release(t->grants[i]);
    }
    free(t->grants);
    *t = (struct tenants){0};
}

uint64_t tenants_number(struct tenants *t, const struct sequence *seq)
{
    struct grant *key = t->is_shared ? NULL : seq->job->grant;
    struct error err;
    for (size_t i = 0; i < t->n; i++) {
        if (t->grants[i] == key) return i + 1;
    }
    if (mem_grow(&t->grants, &t->room, t->n + 1, &err)) return 0;
    if (key) grant_ref(key);
    t->grants[t->n++] = key;
    return t->n;
}
