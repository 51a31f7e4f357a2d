/* Helpers that the tests of the codecs of generation.proto share: a buffer, two arenas, random
 * texts. */
#pragma once

#include "base/limits.h"
#include "proto/generation_wire.h"
#include "tests/support/wire_samples.h"

enum { ARENA_BYTES = 16 << 20 };

static struct error err;
static struct arena made, read_back;
static struct buffer buf;

static inline void setup(void)
{
    CHECK_OK(arena_open(&made, ARENA_BYTES, &err));
    CHECK_OK(arena_open(&read_back, ARENA_BYTES, &err));
}

static inline void teardown(void)
{
    arena_close(&made);
    arena_close(&read_back);
    buffer_free(&buf);
}

static inline const char *text_sample(int max_chars)
{
    static const char *const chars[] = {
        "a",   "Z", " ", "\n", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x89", "\xf4\x8f\xbf\xbf",
        "\x7f"};
    char *text = sample_take(&made, (size_t)max_chars * 4 + 1, 1);
    text[0] = '\0';
    for (int i = sample_int(0, max_chars); i > 0; i--) {
        strcat(text, chars[sample_int(0, 8)]);
    }
    return text;
}
