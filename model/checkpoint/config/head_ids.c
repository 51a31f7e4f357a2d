/* The lists of layers in config.json of heads. */
#include "model/checkpoint/config/head_ids.h"

#include <jansson.h>
#include <stdlib.h>

#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/config_keys.h"

static int compare_ids(const void *left, const void *right)
{
    const int *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

int head_ids_read(int ids[HEAD_FEATURES_MAX], int *n_ids, const json_t *list, const char *key,
                  const char *origin, struct error *err)
{
    size_t n = json_array_size(list);
    *n_ids = 0;
    if (n == 0 || n > HEAD_FEATURES_MAX) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" must be a list of 1 to %d layers", origin,
                         key, HEAD_FEATURES_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > LAYERS_MAX) {
            char shown[CONFIG_VALUE_BYTES];
            return error_set(err, ERR_FORMAT, "%s: \"%s\" has %s, which is no layer (0 to %d are)",
                             origin, key, config_keys_show(id, shown), LAYERS_MAX);
        }
        ids[i] = (int)value;
    }
    qsort(ids, n, sizeof *ids, compare_ids);
    for (size_t i = 1; i < n; i++) {
        if (ids[i] != ids[i - 1]) continue;
        return error_set(err, ERR_FORMAT, "%s: \"%s\" has %d twice", origin, key, ids[i]);
    }
    *n_ids = (int)n;
    return 0;
}
