/* Writes GGUF files for tests, right ones and wrong ones: every number is written as it is given.
 *
 *     struct gguf_writer w = {0};
 *     gguf_put_header(&w, 3, n_tensors, n_keys);
 *     gguf_put_key(&w, "general.architecture", GGUF_STRING);
 *     gguf_put_text(&w, "llama");
 *     gguf_put_tensor(&w, "output_norm.weight", 1, (const uint64_t[]){64}, 0, 0);
 *     gguf_put_padding(&w, 32);
 *     ... the data
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf/gguf.h"
#include "tests/support/check_util.h"

struct gguf_writer {
    uint8_t *data;
    size_t len, capacity;
};

static inline void gguf_put(struct gguf_writer *w, const void *data, size_t n)
{
    if (w->len + n > w->capacity) {
        w->capacity = 2 * (w->len + n);
        w->data = realloc(w->data, w->capacity);
        ck_assert_ptr_nonnull(w->data);
    }
    if (n) memcpy(w->data + w->len, data, n);
    w->len += n;
}

/* The lowest n_bytes bytes of a number. */
static inline void gguf_put_number(struct gguf_writer *w, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        gguf_put(w, &byte, 1);
    }
}

static inline void gguf_put_u32(struct gguf_writer *w, uint64_t value)
{
    gguf_put_number(w, value, 4);
}

static inline void gguf_put_u64(struct gguf_writer *w, uint64_t value)
{
    gguf_put_number(w, value, 8);
}

static inline void gguf_put_f32(struct gguf_writer *w, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gguf_put_u32(w, bits);
}

static inline void gguf_put_text(struct gguf_writer *w, const char *text)
{
    gguf_put_u64(w, strlen(text));
    gguf_put(w, text, strlen(text));
}

static inline void gguf_put_header(struct gguf_writer *w, uint32_t version, uint64_t n_tensors,
                                   uint64_t n_keys)
{
    gguf_put(w, "GGUF", 4);
    gguf_put_u32(w, version);
    gguf_put_u64(w, n_tensors);
    gguf_put_u64(w, n_keys);
}

/* The value comes next. */
static inline void gguf_put_key(struct gguf_writer *w, const char *key, uint32_t kind)
{
    gguf_put_text(w, key);
    gguf_put_u32(w, kind);
}

/* The elements come next. */
static inline void gguf_put_array(struct gguf_writer *w, const char *key, uint32_t kind, uint64_t n)
{
    gguf_put_key(w, key, GGUF_ARRAY);
    gguf_put_u32(w, kind);
    gguf_put_u64(w, n);
}

static inline void gguf_put_text_key(struct gguf_writer *w, const char *key, const char *text)
{
    gguf_put_key(w, key, GGUF_STRING);
    gguf_put_text(w, text);
}

static inline void gguf_put_int_key(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_put_key(w, key, GGUF_UINT32);
    gguf_put_u32(w, value);
}

static inline void gguf_put_float_key(struct gguf_writer *w, const char *key, float value)
{
    gguf_put_key(w, key, GGUF_FLOAT32);
    gguf_put_f32(w, value);
}

static inline void gguf_put_bool_key(struct gguf_writer *w, const char *key, int value)
{
    gguf_put_key(w, key, GGUF_BOOL);
    gguf_put_number(w, (uint64_t)value, 1);
}

static inline void gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t n_dims,
                                   const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gguf_put_text(w, name);
    gguf_put_u32(w, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        gguf_put_u64(w, dims[i]);
    }
    gguf_put_u32(w, type);
    gguf_put_u64(w, offset);
}

/* Zeros up to a multiple of n. */
static inline void gguf_put_padding(struct gguf_writer *w, size_t n)
{
    while (w->len % n) {
        gguf_put_number(w, 0, 1);
    }
}

static inline void gguf_put_zeros(struct gguf_writer *w, size_t n)
{
    while (n--) {
        gguf_put_number(w, 0, 1);
    }
}

static inline void gguf_write_file(const struct gguf_writer *w, const char *path)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(w->data, 1, w->len, file), w->len);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void gguf_writer_free(struct gguf_writer *w)
{
    free(w->data);
    *w = (struct gguf_writer){0};
}
