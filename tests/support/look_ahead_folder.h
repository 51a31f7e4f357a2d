/* A folder of look-ahead embeddings (model/look_ahead.h) that a test writes. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/write_file.h"

enum { LOOK_AHEAD_DIR_BYTES = 64, LOOK_AHEAD_HEAD_BYTES = 1024 };

/* Writes the safetensors file: the header as JSON, and the data. */
static inline void look_ahead_write_tensors(const char *dir, const char *header, const void *data,
                                            size_t n_bytes)
{
    char head[8 + LOOK_AHEAD_HEAD_BYTES];
    size_t len = strlen(header);
    ck_assert_uint_lt(len, LOOK_AHEAD_HEAD_BYTES);
    for (int i = 0; i < 8; i++) {
        head[i] = (char)(len >> (8 * i));
    }
    memcpy(head + 8, header, len);
    write_file(dir, "model.safetensors", head, 8 + len, data, n_bytes);
}

/* Makes the folder; rows[n][width]. */
static inline void look_ahead_make(char dir[LOOK_AHEAD_DIR_BYTES], const float *rows, int n,
                                   int width)
{
    char text[LOOK_AHEAD_HEAD_BYTES];
    size_t bytes = (size_t)n * (size_t)width * sizeof *rows;
    snprintf(dir, LOOK_AHEAD_DIR_BYTES, "/tmp/outrider-look-ahead-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    int len =
        snprintf(text, sizeof text,
                 "{\"model_type\": \"pass\", \"n_lookahead\": %d, \"hidden_size\": %d}", n, width);
    write_file(dir, "config.json", text, (size_t)len, NULL, 0);
    snprintf(text, sizeof text,
             "{\"look_ahead.weight\": {\"dtype\": \"F32\", \"shape\": [%d, %d], "
             "\"data_offsets\": [0, %zu]}}",
             n, width, bytes);
    look_ahead_write_tensors(dir, text, rows, bytes);
}

static inline void look_ahead_remove(const char *dir)
{
    char path[2 * LOOK_AHEAD_DIR_BYTES];
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}
