/* Functions that the codecs of this folder share: protobuf-c without malloc, and checks that name
 * the field.
 *
 * Encoding: a build function makes protobuf-c's structs in the far half of the buffer, and the
 * packed bytes go to the front half. So an encoder needs no memory besides the buffer, and
 * allocates nothing once the buffer has grown. Decoding: protobuf-c unpacks into the caller's
 * arena. Each block there has its size in front of it, which shows whether a string has a NUL byte
 * inside or ends there; protobuf-c itself hides that. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "proto/target_wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "arrays travel as little-endian bytes and are used in place");

/* protobuf-c's structs have no const. Packing only reads what is lent with this. */
void *codec_lend(const void *p);

/* Makes the message of value in scratch; the message may hold pointers into value. NULL: scratch is
 * full. */
typedef const ProtobufCMessage *codec_build_fn(struct arena *scratch, const void *value);

/* Replaces buf's content by the packed message.
 * Errors: ERR_NO_MEMORY, ERR_ARGUMENT too large. */
int codec_encode(struct buffer *buf, codec_build_fn *build, const void *value, struct error *err);

/* A copy of text[len] in scratch, with '?' in place of bytes that are not UTF-8, because a peer
 * would refuse the whole message for them. text may be NULL. NULL: scratch is full. */
char *codec_copy_text(struct arena *scratch, const char *text, size_t len);
/* As codec_copy_text, for a string that ends with a NUL byte. */
char *codec_copy_string(struct arena *scratch, const char *text);
char **codec_copy_strings(struct arena *scratch, const char *const *strings, int n);

/* Unpacks into arena. NULL: err says why (ERR_FORMAT not this message, ERR_NO_MEMORY arena
 * full). */
const void *codec_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                         struct arena *arena, struct error *err);

/* As codec_unpack, for a request. A field that this version does not know is refused by its number,
 * because a request that is served without a part of it would be answered wrongly; and protobuf-c
 * would keep its bytes. Errors: also ERR_FORMAT an unknown field. */
const void *codec_unpack_strict(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                size_t len, struct arena *arena, struct error *err);

/* arena_take that fails with an error. */
void *codec_take(struct arena *arena, size_t n, size_t size, struct error *err);

/* The checks below return 0 or ERR_FORMAT with the field's name and value. */

/* *out = value when min <= value <= max. */
int codec_read_int(int *out, uint32_t value, int min, int max, const char *field,
                   struct error *err);
/* *n = count when count <= max. */
int codec_read_count(int *n, size_t count, size_t max, const char *field, struct error *err);
/* Boundaries of features, ascending, at most `max` in number. */
int codec_read_boundaries(int *out, int *n_out, const uint32_t *boundaries, size_t n, size_t max,
                          struct error *err);

/* The fields of a feature wish, whose boundaries ascend and are at most `max` in number; how many
 * layers there are is not known here. */
int codec_read_features(struct feature_wish *wish, const uint32_t *boundaries, size_t n,
                        bool normed, size_t max, struct error *err);
/* None of the ids is negative. */
int codec_check_ids(const int32_t *ids, size_t n, const char *field, struct error *err);
/* The floats of a bytes field, used in place; none of them is NaN or +inf. *floats is NULL when n =
 * 0. */
int codec_read_floats(const float **floats, int *n, const ProtobufCBinaryData *bytes, size_t max,
                      const char *field, struct error *err);
/* A string of an unpacked message: UTF-8, no NUL, at most max bytes. len may be NULL. */
int codec_read_string(const char **out, size_t *len, const char *text, size_t max,
                      const char *field, struct error *err);
