/* A golden head taken apart, so that a test can put it together wrongly. For one program alone: the
 * parts are static. */
#pragma once

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "tests/support/check_util.h"
#include "tests/support/write_file.h"

#define HEADS       SOURCE_DIR "/tests/golden/heads/"
#define PLACE_HEADS SOURCE_DIR "/tests/golden/place_heads/"
#define BLOCK_HEADS SOURCE_DIR "/tests/golden/block_heads/"

static struct error err;

static char dir[64];
static json_t *config, *header;
static uint8_t *data;
static size_t data_len;

/* The name of a golden head is unique among all kinds of them. */
static inline void take_apart(const char *name)
{
    static const char *const folders[] = {HEADS, PLACE_HEADS, BLOCK_HEADS};
    char path[512];
    const char *folder = NULL;
    struct file_view view;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s", folders[i], name);
        if (access(path, F_OK) == 0) folder = folders[i];
    }
    ck_assert_ptr_nonnull(folder);
    snprintf(dir, sizeof dir, "/tmp/outrider-heads-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s%s/config.json", folder, name);
    config = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(config);
    snprintf(path, sizeof path, "%s%s/model.safetensors", folder, name);
    CHECK_OK(file_map(&view, path, &err));
    size_t len = view.data[0] | (size_t)view.data[1] << 8;
    header = json_loadb((const char *)view.data + 8, len, 0, NULL);
    ck_assert_ptr_nonnull(header);
    data_len = view.size_bytes - 8 - len;
    data = malloc(data_len);
    memcpy(data, view.data + 8 + len, data_len);
    file_unmap(&view);
}

static inline void put_together(void)
{
    char text[32768], table[32768];
    size_t n = json_dumpb(config, text, sizeof text, 0);
    ck_assert_uint_lt(n, sizeof text);
    write_file(dir, "config.json", text, n, NULL, 0);
    n = json_dumpb(header, table + 8, sizeof table - 8, JSON_COMPACT);
    ck_assert_uint_lt(n, sizeof table - 8);
    for (int i = 0; i < 8; i++) {
        table[i] = (char)(n >> (8 * i));
    }
    write_file(dir, "model.safetensors", table, n + 8, data, data_len);
}

static inline void clear_up(void)
{
    static const char *const files[] = {"config.json",       "model.safetensors",
                                        "pytorch_model.bin", "a.safetensors",
                                        "b.safetensors",     "model.safetensors.index.json",
                                        "medusa_lm_head.pt"};
    char path[512];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
    json_decref(config);
    json_decref(header);
    free(data);
    config = header = NULL;
    data = NULL;
}

static inline int open_head(const char *name, const struct head_options *options)
{
    struct checkpoint *ck = NULL;
    int rc = checkpoint_open_head(&ck, name, options, &err);
    ck_assert((rc == 0) == (ck != NULL));
    checkpoint_close(ck);
    return rc;
}

static inline int open_dir(void)
{
    put_together();
    return open_head(dir, NULL);
}

/* The golden head with one key of config.json set to a value, as JSON; "nothing" takes it away. */
static inline int open_with_key(const char *name, const char *key, const char *value)
{
    take_apart(name);
    if (strcmp(value, "nothing") == 0) {
        json_object_del(config, key);
    } else {
        json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
    }
    int rc = open_dir();
    clear_up();
    return rc;
}

/* The golden head in which a tensor has another name. */
static inline int open_renamed(const char *name, const char *tensor, const char *other)
{
    take_apart(name);
    json_t *entry = json_incref(json_object_get(header, tensor));
    ck_assert_ptr_nonnull(entry);
    json_object_del(header, tensor);
    json_object_set_new(header, other, entry);
    int rc = open_dir();
    clear_up();
    return rc;
}

static inline uint8_t *bytes_of(const char *tensor)
{
    const json_t *offsets = json_object_get(json_object_get(header, tensor), "data_offsets");
    return data + json_integer_value(json_array_get(offsets, 0));
}
