/* The table of a safetensors file. */
#include "model/export/tensor_header.h"

#include <inttypes.h>
#include <string.h>

#include "base/text/json_text.h"

enum { LENGTH_BYTES = 8, UNIT = 8 };

static int write_entry(struct buffer *out, const struct tensor_header_entry *entry, uint64_t at,
                       struct error *err)
{
    int rc = 0;
    TRY(buffer_append(out, ",", 1, err));
    TRY(json_text_string(out, entry->name, strlen(entry->name), err));
    TRY(json_text_format(out, err, ":{\"dtype\":\"%s\",\"shape\":[", entry->dtype));
    for (int d = 0; d < entry->n_dims; d++) {
        TRY(json_text_format(out, err, "%s%" PRIu64, d ? "," : "", entry->dims[d]));
    }
    TRY(json_text_format(out, err, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                         at + entry->n_bytes));
out:
    return rc;
}

int tensor_header_write(struct buffer *out, const json_t *metadata,
                        const struct tensor_header_entry *entries, size_t n, struct error *err)
{
    static const char metadata_key[] = "{\"__metadata__\":";
    static const uint8_t no_length[LENGTH_BYTES] = {0};
    size_t begin = out->len;
    uint64_t at = 0;
    int rc = 0;
    TRY(buffer_append(out, no_length, sizeof no_length, err));
    TRY(buffer_append(out, metadata_key, strlen(metadata_key), err));
    TRY(json_text_value(out, metadata, err));
    for (size_t i = 0; i < n; i++) {
        TRY(write_entry(out, &entries[i], at, err));
        at += entries[i].n_bytes;
    }
    TRY(buffer_append(out, "}", 1, err));
    while ((out->len - begin) % UNIT) {
        TRY(buffer_append(out, " ", 1, err));
    }
    uint64_t len = out->len - begin - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++) {
        out->data[begin + (size_t)i] = (uint8_t)(len >> 8 * i);
    }
out:
    return rc;
}
