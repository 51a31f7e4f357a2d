/* A growing array of token ids. */
#include "model/tokenizer/ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int token_ids_append(struct token_ids *ids, const int32_t *data, size_t n, struct error *err)
{
    if (n > SIZE_MAX - ids->n) {
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu more token ids", n);
    }
    int rc = mem_grow(&ids->data, &ids->capacity, ids->n + n, err);
    if (rc) return rc;
    if (n) memcpy(ids->data + ids->n, data, n * sizeof *data);
    ids->n += n;
    return 0;
}

void token_ids_free(struct token_ids *ids)
{
    free(ids->data);
    *ids = (struct token_ids){0};
}
