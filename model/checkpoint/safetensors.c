/* Parser of safetensors headers. The file is not trusted: every offset, size and product is checked
 * to lie inside the file before it is used. */
#include "model/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/json.h"

enum { HEADER_LEN_BYTES = 8, HEADER_MOST_BYTES = 100000000 /* the format's own limit */ };

static const struct {
    const char *name;
    int bits;
} dtypes[] = {
    {"BF16", 16},   {"F16", 16},    {"F32", 32},    {"F64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},      {"U16", 16},    {"I16", 16},
    {"U32", 32},    {"I32", 32},    {"U64", 64},    {"I64", 64},    {"C64", 64},
};

/* Where the data of the file lies. */
struct reader {
    const char *origin;
    uint64_t data_begin, data_bytes;
};

static int dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, name) == 0) return dtypes[i].bits;
    }
    return 0;
}

static int read_header_len(const uint8_t *data, size_t size, const char *origin, uint64_t *len,
                           struct error *err)
{
    if (size < HEADER_LEN_BYTES) {
        return error_set(err, ERR_FORMAT, "%s is no safetensors file: it has %zu bytes", origin,
                         size);
    }
    *len = 0;
    for (int i = 0; i < HEADER_LEN_BYTES; i++) {
        *len |= (uint64_t)data[i] << (8 * i);
    }
    if (*len > HEADER_MOST_BYTES) {
        return error_set(err, ERR_FORMAT,
                         "%s is no safetensors file: a header of %" PRIu64
                         " bytes is longer than the %d allowed",
                         origin, *len, HEADER_MOST_BYTES);
    }
    if (*len > size - HEADER_LEN_BYTES) {
        return error_set(err, ERR_FORMAT,
                         "%s is cut short: a header of %" PRIu64 " bytes in a file of %zu", origin,
                         *len, size);
    }
    return 0;
}

static int read_dtype(struct safetensors_entry *entry, const json_t *object,
                      const struct reader *in, struct error *err)
{
    const char *name = json_string_value(json_object_get(object, "dtype"));
    if (!name || !*name || strlen(name) >= sizeof entry->dtype) {
        return error_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" has no proper dtype", in->origin,
                         entry->name);
    }
    memcpy(entry->dtype, name, strlen(name) + 1);
    return 0;
}

static int read_shape(struct safetensors_entry *entry, const json_t *object,
                      const struct reader *in, struct error *err)
{
    const json_t *shape = json_object_get(object, "shape");
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > SAFETENSORS_DIMS_MAX) {
        return error_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" has no list of at most %d dims",
                         in->origin, entry->name, SAFETENSORS_DIMS_MAX);
    }
    entry->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return error_set(err, ERR_FORMAT, "%s: dim %zu of tensor \"%.200s\" is no size",
                             in->origin, i, entry->name);
        }
        entry->dims[i] = (uint64_t)json_integer_value(dim);
    }
    return 0;
}

static int read_offsets(struct safetensors_entry *entry, const json_t *object,
                        const struct reader *in, struct error *err)
{
    const json_t *pair = json_object_get(object, "data_offsets");
    const json_t *begin = json_array_get(pair, 0), *end = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return error_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" has no proper data_offsets",
                         in->origin, entry->name);
    }
    entry->begin = (uint64_t)json_integer_value(begin);
    entry->end = (uint64_t)json_integer_value(end);
    if (entry->end > in->data_bytes) {
        return error_set(err, ERR_FORMAT,
                         "%s is cut short: tensor \"%.200s\" ends at byte %" PRIu64 " of %" PRIu64
                         " bytes of data",
                         in->origin, entry->name, entry->end, in->data_bytes);
    }
    return 0;
}

/* dims x bits must be exactly the bytes between the offsets. The product cannot overflow, because
 * it is given up as soon as it is larger than any file. */
static int check_size(const struct safetensors_entry *entry, const struct reader *in,
                      struct error *err)
{
    uint64_t bits = (uint64_t)dtype_bits(entry->dtype), most = UINT64_MAX / 2;
    if (!bits) return 0;
    bool is_huge = false, is_empty = false;
    for (int i = 0; i < entry->n_dims; i++) {
        if (entry->dims[i] == 0) is_empty = true;
        if (entry->dims[i] != 0 && bits > most / entry->dims[i]) is_huge = true;
        if (!is_huge) bits *= entry->dims[i];
    }
    if (is_empty) bits = 0, is_huge = false;
    if (is_huge || bits % 8 || bits / 8 != entry->end - entry->begin) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor \"%.200s\" has %" PRIu64
                         " bytes, which is not its shape of %s elements",
                         in->origin, entry->name, entry->end - entry->begin, entry->dtype);
    }
    return 0;
}

static int read_entry(struct safetensors_entry *entry, const json_t *object,
                      const struct reader *in, struct error *err)
{
    int rc = 0;
    if (!json_is_object(object)) {
        return error_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" is not an object", in->origin,
                         entry->name);
    }
    TRY(read_dtype(entry, object, in, err));
    TRY(read_shape(entry, object, in, err));
    TRY(read_offsets(entry, object, in, err));
    TRY(check_size(entry, in, err));
out:
    return rc;
}

static int by_place(const void *left, const void *right)
{
    const struct safetensors_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static int by_name(const void *left, const void *right)
{
    const struct safetensors_entry *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* The tensors must cover the data without overlap, gap or rest. Their offsets, which count from the
 * start of the data, then become offsets in the file. */
static int check_cover(struct safetensors *table, const struct reader *in, struct error *err)
{
    uint64_t at = 0;
    qsort(table->entries, table->n_entries, sizeof *table->entries, by_place);
    for (size_t i = 0; i < table->n_entries; i++) {
        struct safetensors_entry *entry = &table->entries[i];
        if (entry->begin != at) {
            return error_set(err, ERR_FORMAT,
                             "%s: tensor \"%.200s\" begins at byte %" PRIu64 ", %s byte %" PRIu64
                             " where the one before ends",
                             in->origin, entry->name, entry->begin,
                             entry->begin < at ? "overlapping" : "with a gap after", at);
        }
        at = entry->end;
        entry->begin += in->data_begin;
        entry->end += in->data_begin;
    }
    if (at != in->data_bytes) {
        return error_set(err, ERR_FORMAT,
                         "%s: %" PRIu64 " bytes of data, but the tensors end at byte %" PRIu64,
                         in->origin, in->data_bytes, at);
    }
    return 0;
}

static bool is_metadata(const char *key)
{
    return strcmp(key, "__metadata__") == 0;
}

/* One block for all names, one for all entries. */
static int table_reserve(struct safetensors *table, json_t *root, struct error *err)
{
    size_t n_bytes = 0, n = 0;
    int rc = 0;
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        n_bytes += strlen(json_object_iter_key(at)) + 1;
        n++;
    }
    TRY(mem_array(&table->names, n_bytes, 1, err));
    TRY(mem_array(&table->entries, n, sizeof *table->entries, err));
out:
    return rc;
}

static int table_fill(struct safetensors *table, json_t *root, const struct reader *in,
                      struct error *err)
{
    char *name = table->names;
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *key = json_object_iter_key(at);
        if (is_metadata(key)) continue;
        struct safetensors_entry *entry = &table->entries[table->n_entries++];
        size_t len = strlen(key) + 1;
        memcpy(name, key, len);
        entry->name = name;
        name += len;
        int rc = read_entry(entry, json_object_iter_value(at), in, err);
        if (rc) return rc;
    }
    return 0;
}

int safetensors_parse(struct safetensors *table, const uint8_t *data, size_t size_bytes,
                      const char *origin, struct error *err)
{
    struct reader in = {.origin = origin};
    uint64_t len = 0;
    json_t *root = NULL;
    int rc = 0;
    *table = (struct safetensors){0};
    TRY(read_header_len(data, size_bytes, origin, &len, err));
    in.data_begin = HEADER_LEN_BYTES + len;
    in.data_bytes = size_bytes - in.data_begin;
    if (len == 0 || data[HEADER_LEN_BYTES] != '{') {
        rc = error_set(err, ERR_FORMAT, "%s: the header is not a JSON object", origin);
        goto out;
    }
    TRY(json_parse_text(&root, (const char *)data + HEADER_LEN_BYTES, (size_t)len, origin, err));
    TRY(table_reserve(table, root, err));
    TRY(table_fill(table, root, &in, err));
    TRY(check_cover(table, &in, err));
    qsort(table->entries, table->n_entries, sizeof *table->entries, by_name);
out:
    json_decref(root);
    if (rc) safetensors_free(table);
    return rc;
}

void safetensors_free(struct safetensors *table)
{
    free(table->entries);
    free(table->names);
    *table = (struct safetensors){0};
}

const struct safetensors_entry *safetensors_find(const struct safetensors *table, const char *name)
{
    struct safetensors_entry wanted = {.name = name};
    if (!table->n_entries) return NULL;
    return bsearch(&wanted, table->entries, table->n_entries, sizeof wanted, by_name);
}
