/* protobuf-c without malloc, and the checks that every codec uses. */
#include "proto/codec.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/utf8.h"

enum { ENCODE_START_BYTES = 16 << 10, SCRATCH_ALIGN = 64, BLOCK_ALIGN = 8 };
static const size_t encode_buffer_max = (size_t)8 * MESSAGE_BYTES_MAX;

void *codec_lend(const void *p)
{
    void *lent;
    memcpy(&lent, &p, sizeof lent);
    return lent;
}

int codec_encode(struct buffer *buf, codec_build_fn *build, const void *value, struct error *err)
{
    buf->len = 0;
    for (size_t wanted = ENCODE_START_BYTES; wanted <= encode_buffer_max;) {
        int rc = buffer_reserve(buf, wanted, err);
        if (rc) return rc;
        size_t half = buf->capacity / 2 / SCRATCH_ALIGN * SCRATCH_ALIGN;
        struct arena scratch = {.base = buf->data + half, .size_bytes = buf->capacity - half};
        const ProtobufCMessage *message = build(&scratch, value);
        if (!message) {
            wanted = 2 * buf->capacity;
            continue;
        }
        size_t size = protobuf_c_message_get_packed_size(message);
        if (size > MESSAGE_BYTES_MAX) {
            return error_set(err, ERR_ARGUMENT, "a %s of %zu bytes, at most %d can be sent",
                             message->descriptor->short_name, size, MESSAGE_BYTES_MAX);
        }
        if (size <= half) {
            buf->len = protobuf_c_message_pack(message, buf->data);
            return 0;
        }
        wanted = 2 * (size + SCRATCH_ALIGN);
    }
    return error_set(err, ERR_NO_MEMORY, "a message needs more than %zu bytes to be encoded",
                     encode_buffer_max);
}

/* The part of an arena that one unpack fills. */
struct unpack_space {
    uint8_t *base;
    size_t size_bytes, used_bytes;
    bool is_full;
};

static void *unpack_alloc(void *data, size_t size)
{
    struct unpack_space *space = data;
    size_t rest = space->size_bytes - space->used_bytes;
    if (size > rest || rest - size < sizeof size + BLOCK_ALIGN) {
        space->is_full = true;
        return NULL;
    }
    uint8_t *block = space->base + space->used_bytes;
    memcpy(block, &size, sizeof size);
    space->used_bytes += sizeof size + (size + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    return block + sizeof size;
}

static void unpack_free(void *data, void *block)
{
    (void)data;
    (void)block;
}

/* The length of a string that unpack_alloc made; protobuf-c adds one byte for the NUL at the
 * end. */
static size_t unpacked_string_len(const char *text)
{
    if (!text || text == protobuf_c_empty_string) return 0;
    size_t size;
    memcpy(&size, text - sizeof size, sizeof size);
    return size - 1;
}

const void *codec_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                         struct arena *arena, struct error *err)
{
    if (len > MESSAGE_BYTES_MAX) {
        error_set(err, ERR_FORMAT, "a %s of %zu bytes, at most %d are taken", type->short_name, len,
                  MESSAGE_BYTES_MAX);
        return NULL;
    }
    struct unpack_space space = {.base = arena->base + arena->used_bytes,
                                 .size_bytes = arena->size_bytes - arena->used_bytes};
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, &space};
    const ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, len, data);
    if (!message && space.is_full) {
        error_set(err, ERR_NO_MEMORY, "arena full: a %s of %zu bytes does not fit into %zu bytes",
                  type->short_name, len, space.size_bytes);
        return NULL;
    }
    if (!message) {
        error_set(err, ERR_FORMAT, "%zu bytes are not a %s", len, type->short_name);
        return NULL;
    }
    if (!arena_take(arena, space.used_bytes, 1)) { /* only the rounding to the next line */
        arena->used_bytes = arena->size_bytes;
    }
    return message;
}

void *codec_take(struct arena *arena, size_t n, size_t size, struct error *err)
{
    void *block = arena_take(arena, n, size);
    if (!block) {
        error_set(err, ERR_NO_MEMORY, "arena full: %zu of %zu bytes are used, %zu * %zu wanted",
                  arena->used_bytes, arena->size_bytes, n, size);
    }
    return block;
}

char *codec_copy_text(struct arena *scratch, const char *text, size_t len)
{
    char *copy = arena_take(scratch, len + 1, 1);
    if (!copy) return NULL;
    if (len) memcpy(copy, text, len);
    copy[len] = '\0';
    utf8_clean(copy, len);
    return copy;
}

char *codec_copy_string(struct arena *scratch, const char *text)
{
    return codec_copy_text(scratch, text, text ? strlen(text) : 0);
}

char **codec_copy_strings(struct arena *scratch, const char *const *strings, int n)
{
    char **list = arena_take(scratch, (size_t)n, sizeof *list);
    for (int i = 0; list && i < n; i++) {
        list[i] = codec_copy_string(scratch, strings[i]);
        if (!list[i]) return NULL;
    }
    return list;
}

int codec_read_int(int *out, uint32_t value, int min, int max, const char *field, struct error *err)
{
    if (value > (uint32_t)max || (int)value < min) {
        return error_set(err, ERR_FORMAT, "%s is %u, must be %d to %d", field, value, min, max);
    }
    *out = (int)value;
    return 0;
}

int codec_read_count(int *n, size_t count, size_t max, const char *field, struct error *err)
{
    if (count > max) {
        return error_set(err, ERR_FORMAT, "%s has %zu entries, at most %zu are taken", field, count,
                         max);
    }
    *n = (int)count;
    return 0;
}

int codec_read_boundaries(int *out, int *n_out, const uint32_t *boundaries, size_t n, size_t max,
                          struct error *err)
{
    int rc = codec_read_count(n_out, n, max, "boundaries", err);
    for (int i = 0; i < *n_out && !rc; i++) {
        int least = i ? out[i - 1] + 1 : 0;
        rc = codec_read_int(&out[i], boundaries[i], least, UINT16_MAX, "boundaries (ascending)",
                            err);
    }
    return rc;
}

int codec_read_features(struct feature_wish *wish, const uint32_t *boundaries, size_t n,
                        bool normed, size_t max, struct error *err)
{
    int rc = codec_read_boundaries(wish->boundaries, &wish->n, boundaries, n, max, err);
    wish->normed = normed;
    return rc ? error_wrap(err, "features") : 0;
}

int codec_check_ids(const int32_t *ids, size_t n, const char *field, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0) {
            return error_set(err, ERR_FORMAT, "%s[%zu] is %d, must not be negative", field, i,
                             ids[i]);
        }
    }
    return 0;
}

int codec_read_floats(const float **floats, int *n, const ProtobufCBinaryData *bytes, size_t max,
                      const char *field, struct error *err)
{
    if (bytes->len % sizeof **floats) {
        return error_set(err, ERR_FORMAT, "%s has %zu bytes, not a multiple of 4", field,
                         bytes->len);
    }
    int rc = codec_read_count(n, bytes->len / sizeof **floats, max, field, err);
    if (rc) return rc;
    const float *values = *n ? (const float *)(const void *)bytes->data : NULL;
    for (int i = 0; i < *n; i++) {
        if (!(values[i] < INFINITY)) {
            return error_set(err, ERR_FORMAT, "%s[%d] is %g, must be a number or -inf", field, i,
                             (double)values[i]);
        }
    }
    *floats = values;
    return 0;
}

int codec_read_string(const char **out, size_t *len, const char *text, size_t max,
                      const char *field, struct error *err)
{
    size_t n = unpacked_string_len(text);
    if (n > max) {
        return error_set(err, ERR_FORMAT, "%s has %zu bytes, at most %zu are taken", field, n, max);
    }
    size_t valid = n ? utf8_prefix(text, n) : 0;
    if (valid < n) {
        return error_set(err, ERR_FORMAT, "%s is not UTF-8 text at byte %zu (0x%02x)", field, valid,
                         (unsigned)(uint8_t)text[valid]);
    }
    *out = n ? text : "";
    if (len) *len = n;
    return 0;
}
