/* Writes files of models that a test has put together. */
#pragma once

#include "tests/support/check_util.h"

/* The file `name` of the folder, made of head[head_len] and rest[len]. */
static inline void write_file(const char *dir, const char *name, const void *head, size_t head_len,
                              const void *rest, size_t len)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(head, 1, head_len, file), head_len);
    if (len) ck_assert_uint_eq(fwrite(rest, 1, len, file), len);
    ck_assert_int_eq(fclose(file), 0);
}
