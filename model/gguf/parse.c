/* The header of a GGUF file:
 *   "GGUF", u32 version, u64 tensors, u64 keys,
 *   keys:     u64 length, name, u32 kind, value
 *   tensors:  u64 length, name, u32 dims, u64 of each, u32 type of its elements, u64 offset
 *   zeros up to general.alignment, data
 * A string is u64 length and bytes; an array is u32 kind, u64 n and elements. keys.c and tensors.c
 * read their parts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf/internal.h"

enum { ALIGNMENT_DEFAULT = 32, ALIGNMENT_LEAST = 8, ALIGNMENT_MOST = 1 << 20 };

static int take_version(struct gguf_reader *in, struct error *err)
{
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    int rc = 0;
    if (in->size < 4 || memcmp(in->data, "GGUF", 4) != 0) {
        return error_set(err, ERR_FORMAT, "%s is no GGUF file: it does not begin with \"GGUF\"",
                         in->origin);
    }
    TRY(gguf_take(in, 4, "the header", &magic, err));
    TRY(gguf_take_u32(in, "the header", &version, err));
    if (version == 2 || version == 3) return 0;
    if ((version & 0xffff) == 0 && version) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s is a GGUF file for big-endian machines, which is not read; convert "
                         "the model again without --big-endian",
                         in->origin);
    }
    rc = error_set(err, ERR_UNSUPPORTED,
                   "%s is a GGUF file of version %" PRIu32 ", which is not read (2 and 3 are)",
                   in->origin, version);
out:
    return rc;
}

int gguf_parse(struct gguf_file *file, const char *origin, struct error *err)
{
    struct gguf_reader in = {
        .data = file->view.data, .size = file->view.size_bytes, .origin = origin};
    uint64_t n_tensors = 0, n_keys = 0;
    int alignment = ALIGNMENT_DEFAULT, rc = 0;
    TRY(take_version(&in, err));
    TRY(gguf_take_u64(&in, "the header", &n_tensors, err));
    TRY(gguf_take_u64(&in, "the header", &n_keys, err));
    TRY(gguf_parse_keys(file, &in, n_keys, err));
    TRY(gguf_entry_int(file, origin, "general.alignment", ALIGNMENT_LEAST, ALIGNMENT_MOST,
                       &alignment, err));
    if (alignment & (alignment - 1)) {
        return error_set(err, ERR_FORMAT, "%s: \"general.alignment\" is %d, which is no power of 2",
                         origin, alignment);
    }
    TRY(gguf_parse_tensors(file, &in, n_tensors, (uint64_t)alignment, err));
out:
    return rc;
}

void gguf_file_free(struct gguf_file *file)
{
    for (size_t i = 0; i < file->n_entries; i++) {
        free(file->entries[i].key);
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        union {
            const char *in;
            char *out;
        } name = {.in = file->tensors[i].name};
        free(name.out);
    }
    free(file->entries);
    free(file->tensors);
    free(file->name);
    if (file->is_mapped) file_unmap(&file->view);
    *file = (struct gguf_file){0};
}
