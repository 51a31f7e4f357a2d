/* Values of the metadata. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf/internal.h"

enum { SHOWN_BYTES = 80 };

static const char *const kind_names[GGUF_KINDS] = {
    [GGUF_UINT8] = "an integer", [GGUF_INT8] = "an integer",   [GGUF_UINT16] = "an integer",
    [GGUF_INT16] = "an integer", [GGUF_UINT32] = "an integer", [GGUF_INT32] = "an integer",
    [GGUF_FLOAT32] = "a float",  [GGUF_BOOL] = "a boolean",    [GGUF_STRING] = "a text",
    [GGUF_ARRAY] = "an array",   [GGUF_UINT64] = "an integer", [GGUF_INT64] = "an integer",
    [GGUF_FLOAT64] = "a float"};

static bool is_integer(enum gguf_kind kind)
{
    switch (kind) {
    case GGUF_UINT8:
    case GGUF_INT8:
    case GGUF_UINT16:
    case GGUF_INT16:
    case GGUF_UINT32:
    case GGUF_INT32:
    case GGUF_UINT64:
    case GGUF_INT64:
        return true;
    default:
        return false;
    }
}

static bool is_float(enum gguf_kind kind)
{
    return kind == GGUF_FLOAT32 || kind == GGUF_FLOAT64;
}

/* The bits of a number of this kind, with its sign where it has one. */
static uint64_t load_bits(enum gguf_kind kind, const uint8_t *at)
{
    switch (kind) {
    case GGUF_UINT8:
    case GGUF_BOOL:
        return at[0];
    case GGUF_INT8:
        return (uint64_t)(int8_t)at[0];
    case GGUF_UINT16:
        return (uint64_t)at[0] | (uint64_t)at[1] << 8;
    case GGUF_INT16:
        return (uint64_t)(int16_t)(at[0] | at[1] << 8);
    case GGUF_UINT32:
    case GGUF_FLOAT32:
        return gguf_u32(at);
    case GGUF_INT32:
        return (uint64_t)(int32_t)gguf_u32(at);
    default:
        return gguf_u64(at);
    }
}

static int64_t load_int(enum gguf_kind kind, const uint8_t *at)
{
    uint64_t bits = load_bits(kind, at);
    return kind == GGUF_UINT64 && bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}

static double load_number(enum gguf_kind kind, const uint8_t *at)
{
    uint64_t bits = load_bits(kind, at);
    if (kind == GGUF_FLOAT32) {
        uint32_t half = (uint32_t)bits;
        float value;
        memcpy(&value, &half, sizeof value);
        return (double)value;
    }
    if (kind == GGUF_FLOAT64) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    return kind == GGUF_UINT64 ? (double)bits : (double)(int64_t)bits;
}

static void show(const struct gguf_entry *entry, char text[SHOWN_BYTES])
{
    if (entry->kind == GGUF_ARRAY) {
        snprintf(text, SHOWN_BYTES, "an array of %" PRIu64, entry->n);
    } else if (entry->kind == GGUF_STRING) {
        uint64_t len = gguf_u64(entry->data);
        snprintf(text, SHOWN_BYTES, "the text \"%.*s\"", len < 40 ? (int)len : 40,
                 (const char *)entry->data + 8);
    } else if (is_float(entry->kind)) {
        snprintf(text, SHOWN_BYTES, "%g", load_number(entry->kind, entry->data));
    } else if (entry->kind == GGUF_BOOL) {
        snprintf(text, SHOWN_BYTES, "%s", entry->data[0] ? "true" : "false");
    } else if (entry->kind == GGUF_UINT64) {
        snprintf(text, SHOWN_BYTES, "%" PRIu64, gguf_u64(entry->data));
    } else {
        snprintf(text, SHOWN_BYTES, "%" PRId64, load_int(entry->kind, entry->data));
    }
}

static int refuse(const struct gguf_entry *entry, const char *origin, const char *wanted,
                  struct error *err)
{
    char shown[SHOWN_BYTES];
    show(entry, shown);
    return error_set(err, ERR_FORMAT, "%s: \"%.100s\" is %s, must be %s", origin, entry->key, shown,
                     wanted);
}

/* The metadata are those of the first file. */
static const struct gguf_entry *find(const struct gguf *gguf, const char *key)
{
    return gguf_find_entry(&gguf->files[0], key);
}

size_t gguf_n_keys(const struct gguf *gguf)
{
    return gguf->files[0].n_entries;
}

const char *gguf_key(const struct gguf *gguf, size_t i)
{
    return gguf->files[0].entries[i].key;
}

bool gguf_has(const struct gguf *gguf, const char *key)
{
    return find(gguf, key) != NULL;
}

bool gguf_is_array(const struct gguf *gguf, const char *key)
{
    const struct gguf_entry *entry = find(gguf, key);
    return entry && entry->kind == GGUF_ARRAY;
}

int gguf_entry_int(const struct gguf_file *file, const char *origin, const char *key, int least,
                   int most, int *out, struct error *err)
{
    char wanted[80];
    const struct gguf_entry *entry = gguf_find_entry(file, key);
    if (!entry) return 0;
    int64_t value = is_integer(entry->kind) ? load_int(entry->kind, entry->data) : INT64_MIN;
    if (value < least || value > most) {
        snprintf(wanted, sizeof wanted, "an integer from %d to %d", least, most);
        return refuse(entry, origin, wanted, err);
    }
    *out = (int)value;
    return 0;
}

int gguf_read_int(const struct gguf *gguf, const char *key, int least, int most, int *out,
                  struct error *err)
{
    return gguf_entry_int(&gguf->files[0], gguf->origin, key, least, most, out, err);
}

int gguf_read_number(const struct gguf *gguf, const char *key, double *out, struct error *err)
{
    const struct gguf_entry *entry = find(gguf, key);
    if (!entry) return 0;
    double value = (double)NAN;
    if (is_integer(entry->kind) || is_float(entry->kind)) {
        value = load_number(entry->kind, entry->data);
    }
    if (!isfinite(value)) return refuse(entry, gguf->origin, "a number", err);
    *out = value;
    return 0;
}

int gguf_read_bool(const struct gguf *gguf, const char *key, bool *out, struct error *err)
{
    const struct gguf_entry *entry = find(gguf, key);
    if (!entry) return 0;
    if (entry->kind != GGUF_BOOL) return refuse(entry, gguf->origin, "true or false", err);
    *out = entry->data[0];
    return 0;
}

int gguf_read_text(const struct gguf *gguf, const char *key, struct gguf_text *out,
                   struct error *err)
{
    const struct gguf_entry *entry = find(gguf, key);
    if (!entry) return 0;
    if (entry->kind != GGUF_STRING) return refuse(entry, gguf->origin, "a text", err);
    const uint8_t *at = entry->data;
    *out = gguf_next_text(&at);
    return 0;
}

/* ---- arrays ---- */

static bool is_number(enum gguf_kind kind)
{
    return is_integer(kind) || is_float(kind);
}

static bool is_bool(enum gguf_kind kind)
{
    return kind == GGUF_BOOL;
}

static bool is_text(enum gguf_kind kind)
{
    return kind == GGUF_STRING;
}

static int read_array(const struct gguf *gguf, const char *key, bool (*is_wanted)(enum gguf_kind),
                      const char *wanted, struct gguf_array *out, struct error *err)
{
    const struct gguf_entry *entry = find(gguf, key);
    if (!entry) return 0;
    if (entry->kind != GGUF_ARRAY) return refuse(entry, gguf->origin, wanted, err);
    if (entry->n && !is_wanted(entry->element)) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"%.100s\" is an array whose elements are each %s, must be %s",
                         gguf->origin, entry->key, kind_names[entry->element], wanted);
    }
    *out = (struct gguf_array){.kind = entry->element, .n = entry->n, .data = entry->data};
    return 0;
}

int gguf_read_ints(const struct gguf *gguf, const char *key, struct gguf_array *out,
                   struct error *err)
{
    return read_array(gguf, key, is_integer, "an array of integers", out, err);
}

int gguf_read_numbers(const struct gguf *gguf, const char *key, struct gguf_array *out,
                      struct error *err)
{
    return read_array(gguf, key, is_number, "an array of numbers", out, err);
}

int gguf_read_bools(const struct gguf *gguf, const char *key, struct gguf_array *out,
                    struct error *err)
{
    return read_array(gguf, key, is_bool, "an array of booleans", out, err);
}

int gguf_read_texts(const struct gguf *gguf, const char *key, struct gguf_array *out,
                    struct error *err)
{
    return read_array(gguf, key, is_text, "an array of texts", out, err);
}

static const uint8_t *element(const struct gguf_array *array, uint64_t i)
{
    return array->data + i * gguf_kind_bytes(array->kind);
}

int64_t gguf_array_int(const struct gguf_array *array, uint64_t i)
{
    return load_int(array->kind, element(array, i));
}

double gguf_array_number(const struct gguf_array *array, uint64_t i)
{
    return load_number(array->kind, element(array, i));
}

bool gguf_array_bool(const struct gguf_array *array, uint64_t i)
{
    return element(array, i)[0] != 0;
}

struct gguf_text gguf_next_text(const uint8_t **at)
{
    struct gguf_text text = {.data = (const char *)*at + 8, .len = (size_t)gguf_u64(*at)};
    *at += 8 + text.len;
    return text;
}

bool gguf_text_is(const struct gguf_text *text, const char *wanted)
{
    return text->len == strlen(wanted) && memcmp(text->data, wanted, text->len) == 0;
}
