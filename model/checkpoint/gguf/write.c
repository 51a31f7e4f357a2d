/* Functions that the writers of a config share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint/gguf/internal.h"

const char *gguf_arch_key(const struct gguf_writing *w, const char *tail, char key[GGUF_KEY_BYTES])
{
    snprintf(key, GGUF_KEY_BYTES, "%s.%s", w->arch->name, tail);
    return key;
}

int gguf_set(json_t *object, const char *key, json_t *value, struct error *err)
{
    if (value && json_object_set_new(object, key, value) == 0) return 0;
    return error_set(err, ERR_NO_MEMORY, "no memory for a config");
}

int gguf_set_class(const struct gguf_writing *w, const char *architecture, const char *model_type,
                   struct error *err)
{
    int rc = 0;
    TRY(gguf_set(w->root, "architectures", json_pack("[s]", architecture), err));
    TRY(gguf_set(w->root, "model_type", json_string(model_type), err));
out:
    return rc;
}

int gguf_append(json_t *list, json_t *value, struct error *err)
{
    if (value && json_array_append_new(list, value) == 0) return 0;
    return error_set(err, ERR_NO_MEMORY, "no memory for a config");
}

json_t *gguf_json_number(double value)
{
    char text[40];
    float single = (float)value;
    if ((double)single != value) return json_real(value);
    if (value == floor(value) && fabs(value) < 1e9) return json_integer((json_int_t)value);
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == single) break;
    }
    return json_real(strtod(text, NULL));
}

int gguf_read_equal(const struct gguf_writing *w, const char *tail, int least, int most, int *out,
                    struct error *err)
{
    char key[GGUF_KEY_BYTES];
    struct gguf_array array = {0};
    int rc = 0;
    gguf_arch_key(w, tail, key);
    if (!gguf_is_array(w->gguf, key)) return gguf_read_int(w->gguf, key, least, most, out, err);
    TRY(gguf_read_ints(w->gguf, key, &array, err));
    if (array.n == 0) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is an empty array", gguf_origin(w->gguf),
                         key);
    }
    for (uint64_t i = 0; i < array.n; i++) {
        int64_t value = gguf_array_int(&array, i);
        if (value < least || value > most) {
            return error_set(err, ERR_FORMAT,
                             "%s: \"%s\" is %lld for layer %llu, must be an integer from %d to %d",
                             gguf_origin(w->gguf), key, (long long)value, (unsigned long long)i,
                             least, most);
        }
        if (value != gguf_array_int(&array, 0)) {
            return error_set(err, ERR_UNSUPPORTED,
                             "%s: \"%s\" is %lld for layer 0 and %lld for layer %llu; models whose "
                             "layers differ in it are not supported",
                             gguf_origin(w->gguf), key, (long long)gguf_array_int(&array, 0),
                             (long long)value, (unsigned long long)i);
        }
        *out = (int)value;
    }
out:
    return rc;
}
