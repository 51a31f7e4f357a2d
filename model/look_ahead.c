/* Reading a folder of look-ahead embeddings. */
#include "model/look_ahead.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/system/hub_cache.h"
#include "base/system/model_folder.h"
#include "base/text/json.h"

enum { WIDTH_MOST = 1 << 20, CONFIG_MOST_BYTES = 1 << 20, PATH_BYTES = HUB_PATH_BYTES + 32 };

static const char tensors_file[] = "model.safetensors";

static const char tensor_name[] = "look_ahead.weight";

/* Shape of the embeddings, as config.json has it. */
struct claims {
    bool is_look_ahead;
    int n, width;
};

static int parse_config(const char *text, size_t len, const char *path, struct claims *claims,
                        struct error *err)
{
    json_t *root = NULL;
    int rc = 0;
    TRY(json_parse_python(&root, text, len, path, err));
    const char *type = json_string_value(json_member(root, "model_type"));
    claims->is_look_ahead = type && strcmp(type, "pass") == 0;
    if (!claims->is_look_ahead) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s: \"model_type\" is \"%.64s\", that of look-ahead embeddings is \"pass\"",
                       path, type ? type : "");
        goto out;
    }
    TRY(json_read_int(root, "n_lookahead", 1, DRAFT_MAX, &claims->n, path, err));
    TRY(json_read_int(root, "hidden_size", 1, WIDTH_MOST, &claims->width, path, err));
    if (claims->n && claims->width) goto out;
    rc = error_set(err, ERR_FORMAT, "%s: \"%s\" is missing", path,
                   claims->n ? "hidden_size" : "n_lookahead");
out:
    json_decref(root);
    return rc;
}

static int read_config(const char *folder, struct claims *claims, struct error *err)
{
    char path[PATH_BYTES], *text = NULL;
    size_t len = 0;
    *claims = (struct claims){0};
    snprintf(path, sizeof path, "%s/config.json", folder);
    int rc = file_read_text(&text, &len, path, CONFIG_MOST_BYTES, err);
    if (rc == ERR_NOT_FOUND || rc == ERR_IO) {
        rc = model_folder_explain(folder, "config.json", rc, err);
    }
    if (!rc) rc = parse_config(text, len, path, claims, err);
    free(text);
    return rc;
}

bool look_ahead_is_folder(const char *name)
{
    char folder[HUB_PATH_BYTES];
    struct claims claims = {0};
    struct error ignored;
    if (hub_cache_resolve(folder, name, &ignored)) return false;
    (void)read_config(folder, &claims, &ignored);
    return claims.is_look_ahead;
}

static int open_folder(struct look_ahead *l, const char *name, struct claims *claims,
                       struct error *err)
{
    char folder[HUB_PATH_BYTES], path[PATH_BYTES];
    int rc = 0;
    TRY(hub_cache_resolve(folder, name, err));
    l->folder = strdup(folder);
    if (!l->folder) return error_set(err, ERR_NO_MEMORY, "no memory for a folder's name");
    TRY(read_config(folder, claims, err));
    snprintf(path, sizeof path, "%s/%s", folder, tensors_file);
    TRY(file_map(&l->view, path, err));
    TRY(safetensors_parse(&l->table, l->view.data, l->view.size_bytes, path, err));
out:
    return rc;
}

/* The tensor of the file, which has no other one. */
static int find_entry(const struct look_ahead *l, const struct safetensors_entry **entry,
                      struct error *err)
{
    for (size_t i = 0; i < l->table.n_entries; i++) {
        const char *name = l->table.entries[i].name;
        if (strcmp(name, tensor_name) == 0) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: tensor %.100s is not known: look-ahead embeddings are %s alone",
                         l->folder, name, tensor_name);
    }
    if (l->table.n_entries != 1) {
        return error_set(err, ERR_FORMAT, "%s: %s must have one tensor %s", l->folder, tensors_file,
                         tensor_name);
    }
    *entry = &l->table.entries[0];
    return 0;
}

static int find_rows(struct look_ahead *l, const struct claims *claims, struct error *err)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } dtypes[] = {{"BF16", DTYPE_BF16}, {"F16", DTYPE_F16}, {"F32", DTYPE_F32}};
    const struct safetensors_entry *entry = NULL;
    int rc = find_entry(l, &entry, err);
    if (rc) return rc;
    if (entry->n_dims != 2 || entry->dims[0] != (uint64_t)claims->n ||
        entry->dims[1] != (uint64_t)claims->width) {
        return error_set(err, ERR_FORMAT,
                         "%s: the shape of %s is not that of config.json, [%d, %d]", l->folder,
                         tensor_name, claims->n, claims->width);
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, entry->dtype) != 0) continue;
        l->rows = (struct weight){.dtype = dtypes[i].dtype,
                                  .n_rows = claims->n,
                                  .n_cols = claims->width,
                                  .data = l->view.data + entry->begin};
        l->n = claims->n;
        return 0;
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: %s is of dtype %s, which is not supported (BF16, F16, F32 are)",
                     l->folder, tensor_name, entry->dtype);
}

/* Checks the numbers, and takes their digest. */
static int read_rows(struct look_ahead *l, struct error *err)
{
    int rc = 0, shape[] = {l->n, l->rows.n_cols};
    float *row = NULL;
    uint64_t hash = XXH3_64bits(shape, sizeof shape);
    TRY(mem_array(&row, (size_t)l->rows.n_cols, sizeof *row, err));
    for (int i = 0; i < l->n; i++) {
        weight_read_f32(&l->rows, i, 0, l->rows.n_cols, row);
        hash = XXH3_64bits_withSeed(row, (size_t)l->rows.n_cols * sizeof *row, hash);
        for (int c = 0; c < l->rows.n_cols; c++) {
            if (isfinite(row[c])) continue;
            rc = error_set(err, ERR_FORMAT,
                           "%s: %s has an element that is no number, in row %d, so the file is "
                           "damaged",
                           l->folder, tensor_name, i);
            goto out;
        }
    }
    l->digest = hash ? hash : 1;
out:
    free(row);
    return rc;
}

int look_ahead_open(struct look_ahead *l, const char *name, struct error *err)
{
    struct claims claims;
    int rc = 0;
    *l = (struct look_ahead){0};
    TRY(open_folder(l, name, &claims, err));
    TRY(find_rows(l, &claims, err));
    TRY(read_rows(l, err));
out:
    if (rc) look_ahead_close(l);
    return rc;
}

void look_ahead_close(struct look_ahead *l)
{
    file_unmap(&l->view);
    safetensors_free(&l->table);
    free(l->folder);
    *l = (struct look_ahead){0};
}

int look_ahead_check_target(const struct look_ahead *l, const char *target, int width,
                            struct error *err)
{
    if (l->rows.n_cols == width) return 0;
    return error_set(err, ERR_FORMAT,
                     "%s has look-ahead embeddings of width %d, but %s has the width %d: they are "
                     "of another model",
                     l->folder, l->rows.n_cols, target, width);
}
