/* Refuses the unknown fields of a message, before protobuf-c spends memory on them. */
#include "proto/codec.h"

#include <stdbool.h>

enum {
    WIRE_VARINT = 0,
    WIRE_64BIT = 1,
    WIRE_LENGTH = 2,
    WIRE_32BIT = 5,
    VARINT_BYTES_MAX = 10,
    DEPTH_MAX = 8 /* our messages are nested 3 deep */
};

struct span {
    const uint8_t *data;
    size_t len;
};

static bool take_varint(struct span *span, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < VARINT_BYTES_MAX && i < span->len; i++) {
        *value |= (uint64_t)(span->data[i] & 0x7f) << (7 * i);
        if (!(span->data[i] & 0x80)) {
            span->data += i + 1;
            span->len -= i + 1;
            return true;
        }
    }
    return false;
}

static bool skip(struct span *span, uint64_t bytes)
{
    if (bytes > span->len) return false;
    span->data += bytes;
    span->len -= (size_t)bytes;
    return true;
}

/* Takes one field off the front. *inner is what it holds if it has a length. False: these bytes are
 * no field. */
static bool take_field(struct span *span, uint64_t *tag, struct span *inner)
{
    uint64_t key, value;
    *inner = (struct span){0};
    if (!take_varint(span, &key)) return false;
    *tag = key >> 3;
    switch (key & 7) {
    case WIRE_VARINT:
        return take_varint(span, &value);
    case WIRE_64BIT:
        return skip(span, 8);
    case WIRE_32BIT:
        return skip(span, 4);
    case WIRE_LENGTH:
        if (!take_varint(span, &value)) return false;
        *inner = (struct span){span->data, (size_t)value};
        return skip(span, value);
    default:
        return false;
    }
}

/* Bytes that are no message are left to protobuf-c, which refuses them. */
static int known_check(const ProtobufCMessageDescriptor *type, struct span span, int depth,
                       struct error *err)
{
    uint64_t tag;
    struct span inner;
    int rc = 0;
    while (!rc && span.len && take_field(&span, &tag, &inner)) {
        const ProtobufCFieldDescriptor *field =
            tag <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(type, (unsigned)tag) : NULL;
        if (!field) {
            return error_set(
                err, ERR_FORMAT,
                "field %llu of %s is not known to this version; leave it out, or ask a "
                "service that has it",
                (unsigned long long)tag, type->short_name);
        }
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && inner.data && depth < DEPTH_MAX) {
            rc = known_check(field->descriptor, inner, depth + 1, err);
        }
    }
    return rc;
}

const void *codec_unpack_strict(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                size_t len, struct arena *arena, struct error *err)
{
    if (known_check(type, (struct span){data, len}, 0, err)) return NULL;
    return codec_unpack(type, data, len, arena, err);
}
