/* The keys of a GGUF file with their values. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf/internal.h"

enum {
    KEY_MOST_BYTES = 65535,
    KEYS_MOST = 1 << 16,
    KEY_LEAST_BYTES = 8 + 1 + 4 + 1, /* of a key with its value */
    NESTED_MOST = 4
};

size_t gguf_kind_bytes(enum gguf_kind kind)
{
    static const size_t bytes[GGUF_KINDS] = {
        [GGUF_UINT8] = 1,  [GGUF_INT8] = 1,    [GGUF_UINT16] = 2, [GGUF_INT16] = 2,
        [GGUF_UINT32] = 4, [GGUF_INT32] = 4,   [GGUF_BOOL] = 1,   [GGUF_FLOAT32] = 4,
        [GGUF_UINT64] = 8, [GGUF_FLOAT64] = 8, [GGUF_INT64] = 8};
    return bytes[kind];
}

/* A place in the metadata with the key whose value is being read. */
struct value_reader {
    struct gguf_reader *in;
    const char *key;
};

static int refuse(const struct value_reader *r, struct error *err, const char *what,
                  unsigned long long value)
{
    return error_set(err, ERR_FORMAT, "%s: the value of \"%.100s\" has %s %llu, which is none",
                     r->in->origin, r->key, what, value);
}

static int take_kind(const struct value_reader *r, enum gguf_kind *kind, struct error *err)
{
    uint32_t number = 0;
    int rc = gguf_take_u32(r->in, r->key, &number, err);
    if (rc) return rc;
    if (number >= GGUF_KINDS) return refuse(r, err, "the kind", number);
    *kind = (enum gguf_kind)number;
    return 0;
}

static int skip_elements(const struct value_reader *r, enum gguf_kind kind, uint64_t n, int depth,
                         struct error *err);

/* Moves over an array's kind and number of elements, which it returns. */
static int take_array(const struct value_reader *r, enum gguf_kind *kind, uint64_t *n,
                      struct error *err)
{
    int rc = 0;
    TRY(take_kind(r, kind, err));
    TRY(gguf_take_u64(r->in, r->key, n, err));
out:
    return rc;
}

static int skip_string(const struct value_reader *r, struct error *err)
{
    const uint8_t *at = NULL;
    uint64_t len = 0;
    int rc = gguf_take_u64(r->in, r->key, &len, err);
    return rc ? rc : gguf_take(r->in, len, r->key, &at, err);
}

static int skip_array(const struct value_reader *r, int depth, struct error *err)
{
    enum gguf_kind kind = GGUF_UINT8;
    uint64_t n = 0;
    int rc = 0;
    if (depth > NESTED_MOST) {
        return error_set(err, ERR_FORMAT,
                         "%s: the value of \"%.100s\" has arrays in arrays, more than %d deep",
                         r->in->origin, r->key, NESTED_MOST);
    }
    TRY(take_array(r, &kind, &n, err));
    TRY(skip_elements(r, kind, n, depth, err));
out:
    return rc;
}

/* Every element takes a byte at least, so a false n ends with the file. */
static int skip_elements(const struct value_reader *r, enum gguf_kind kind, uint64_t n, int depth,
                         struct error *err)
{
    size_t bytes = gguf_kind_bytes(kind);
    const uint8_t *at = NULL;
    int rc = 0;
    if (bytes) {
        TRY(gguf_take(r->in, n > UINT64_MAX / 8 ? UINT64_MAX : n * bytes, r->key, &at, err));
        for (uint64_t i = 0; kind == GGUF_BOOL && i < n; i++) {
            if (at[i] > 1) return refuse(r, err, "the truth value", at[i]);
        }
        return 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        TRY(kind == GGUF_STRING ? skip_string(r, err) : skip_array(r, depth + 1, err));
    }
out:
    return rc;
}

static int take_entry(struct gguf_reader *in, struct gguf_entry *entry, struct error *err)
{
    int rc = 0;
    TRY(gguf_take_name(in, KEY_MOST_BYTES, "a key", &entry->key, err));
    const struct value_reader r = {in, entry->key};
    TRY(take_kind(&r, &entry->kind, err));
    entry->element = entry->kind;
    entry->n = 1;
    if (entry->kind == GGUF_ARRAY) TRY(take_array(&r, &entry->element, &entry->n, err));
    entry->data = in->data + in->at;
    TRY(skip_elements(&r, entry->element, entry->n, 1, err));
out:
    return rc;
}

static int entry_by_key(const void *left, const void *right)
{
    const struct gguf_entry *a = left, *b = right;
    return strcmp(a->key, b->key);
}

int gguf_parse_keys(struct gguf_file *file, struct gguf_reader *in, uint64_t n, struct error *err)
{
    int rc = 0;
    if (n > KEYS_MOST || n > (in->size - in->at) / KEY_LEAST_BYTES) {
        return error_set(err, ERR_FORMAT,
                         "%s has %" PRIu64 " keys by its header, which is more than a file of %zu "
                         "bytes can have, or than the %d that are read",
                         in->origin, n, in->size, KEYS_MOST);
    }
    TRY(mem_array(&file->entries, (size_t)n, sizeof *file->entries, err));
    while (file->n_entries < n) {
        TRY(take_entry(in, &file->entries[file->n_entries++], err));
    }
    qsort(file->entries, file->n_entries, sizeof *file->entries, entry_by_key);
    for (size_t i = 1; i < file->n_entries; i++) {
        if (strcmp(file->entries[i - 1].key, file->entries[i].key) != 0) continue;
        return error_set(err, ERR_FORMAT, "%s has the key \"%.100s\" twice", in->origin,
                         file->entries[i].key);
    }
out:
    return rc;
}

static int key_to_entry(const void *key, const void *entry)
{
    return strcmp(key, ((const struct gguf_entry *)entry)->key);
}

const struct gguf_entry *gguf_find_entry(const struct gguf_file *file, const char *key)
{
    if (!file->n_entries) return NULL;
    return bsearch(key, file->entries, file->n_entries, sizeof *file->entries, key_to_entry);
}
