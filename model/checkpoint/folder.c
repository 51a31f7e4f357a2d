/* Opens a Hugging Face folder: config.json, generation_config.json if there is one, and the tensors
 * in model.safetensors or in the files that model.safetensors.index.json lists. Files are mapped,
 * so that several ranks on one host share one copy in the page cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "model/checkpoint/config_parse.h"
#include "model/checkpoint/internal.h"

enum {
    PATH_BYTES = 4096,
    CONFIG_MOST_BYTES = 4 << 20,
    INDEX_MOST_BYTES = 100 << 20,
    MOST_FILES = 4096
};

static const char index_file[] = "model.safetensors.index.json";
static const char single_file[] = "model.safetensors";

void checkpoint_close_files(struct checkpoint *ck)
{
    for (size_t i = 0; i < ck->n_files; i++) {
        file_unmap(&ck->files[i].view);
        safetensors_free(&ck->files[i].table);
        free(ck->files[i].name);
    }
    free(ck->files);
    ck->files = NULL;
    ck->n_files = 0;
}

static int join_path(char path[PATH_BYTES], const char *folder, const char *file, struct error *err)
{
    int len = snprintf(path, PATH_BYTES, "%s/%s", folder, file);
    if (len >= PATH_BYTES) {
        return error_set(err, ERR_ARGUMENT, "the path of %s in %.100s... is too long", file,
                         folder);
    }
    return 0;
}

static int read_config(struct checkpoint *ck, struct error *err)
{
    char path[PATH_BYTES], generation_path[PATH_BYTES];
    char *config = NULL, *generation = NULL;
    size_t config_len = 0, generation_len = 0;
    int rc = 0;
    TRY(join_path(path, ck->name, "config.json", err));
    TRY(join_path(generation_path, ck->name, "generation_config.json", err));
    TRY(file_read_text(&config, &config_len, path, CONFIG_MOST_BYTES, err));
    rc = file_read_text(&generation, &generation_len, generation_path, CONFIG_MOST_BYTES, err);
    if (rc && rc != ERR_NOT_FOUND) goto out;
    rc = config_parse(&ck->cfg, config, config_len, generation, generation_len, path, err);
out:
    free(config);
    free(generation);
    return rc;
}

static int open_file(struct checkpoint *ck, const char *name, struct error *err)
{
    char path[PATH_BYTES];
    struct weight_file *file = &ck->files[ck->n_files++];
    int rc = 0;
    file->name = strdup(name);
    if (!file->name) return error_set(err, ERR_NO_MEMORY, "no memory for a file name");
    TRY(join_path(path, ck->name, name, err));
    TRY(file_map(&file->view, path, err));
    file_advise(&file->view, FILE_IN_PARTS);
    rc = safetensors_parse(&file->table, file->view.data, file->view.size_bytes, path, err);
out:
    return rc;
}

static void add_tensor(struct checkpoint *ck, const struct weight_file *file,
                       const struct safetensors_entry *entry)
{
    ck->tensors[ck->n_tensors++] = (struct tensor){
        .name = entry->name,
        .entry = entry,
        .weight = {.data = file->view.data + entry->begin},
    };
}

static int open_single(struct checkpoint *ck, struct error *err)
{
    int rc = 0;
    TRY(mem_array(&ck->files, 1, sizeof *ck->files, err));
    TRY(open_file(ck, single_file, err));
    const struct safetensors *table = &ck->files[0].table;
    TRY(mem_array(&ck->tensors, table->n_entries, sizeof *ck->tensors, err));
    for (size_t i = 0; i < table->n_entries; i++) {
        add_tensor(ck, &ck->files[0], &table->entries[i]);
    }
out:
    return rc;
}

/* Whether this names a file of the folder itself: no path that leads out of it, nothing hidden. */
static bool is_plain_name(const char *file)
{
    return file && *file && *file != '.' && !strchr(file, '/') && !strchr(file, '\\');
}

static int find_file(struct checkpoint *ck, const char *file, const char *origin, size_t *at,
                     struct error *err)
{
    /* A map lists the tensors of one file one after the other, so the last file is tried first. */
    for (size_t i = ck->n_files; i-- > 0;) {
        *at = i;
        if (strcmp(ck->files[i].name, file) == 0) return 0;
    }
    if (ck->n_files == MOST_FILES) {
        return error_set(err, ERR_UNSUPPORTED, "%s names more than %d files", origin, MOST_FILES);
    }
    *at = ck->n_files;
    return open_file(ck, file, err);
}

static int add_mapped(struct checkpoint *ck, const char *name, const json_t *value,
                      const char *origin, struct error *err)
{
    const char *file = json_string_value(value);
    size_t at = 0;
    int rc = 0;
    if (!is_plain_name(file)) {
        return error_set(err, ERR_FORMAT,
                         "%s: the file of tensor \"%.100s\" is \"%.100s\", which is no plain name",
                         origin, name, file ? file : "no string");
    }
    TRY(find_file(ck, file, origin, &at, err));
    const struct safetensors_entry *entry = safetensors_find(&ck->files[at].table, name);
    if (!entry) {
        rc = error_set(err, ERR_FORMAT, "%s: tensor \"%.100s\" is not in %.100s", origin, name,
                       file);
        goto out;
    }
    add_tensor(ck, &ck->files[at], entry);
out:
    return rc;
}

static int open_indexed(struct checkpoint *ck, const char *index, size_t len, const char *origin,
                        struct error *err)
{
    json_t *root = NULL;
    int rc = 0;
    TRY(json_parse_text(&root, index, len, origin, err));
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) {
        rc = error_set(err, ERR_FORMAT, "%s lacks the object \"weight_map\"", origin);
        goto out;
    }
    TRY(mem_array(&ck->tensors, json_object_size(map), sizeof *ck->tensors, err));
    TRY(mem_array(&ck->files, MOST_FILES, sizeof *ck->files, err));
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        TRY(add_mapped(ck, json_object_iter_key(at), json_object_iter_value(at), origin, err));
    }
out:
    json_decref(root);
    return rc;
}

static int open_tensors(struct checkpoint *ck, struct error *err)
{
    char path[PATH_BYTES];
    char *index = NULL;
    size_t len = 0;
    int rc = open_single(ck, err);
    if (rc != ERR_NOT_FOUND) return rc;
    checkpoint_close_files(ck);
    TRY(join_path(path, ck->name, index_file, err));
    rc = file_read_text(&index, &len, path, INDEX_MOST_BYTES, err);
    if (rc == ERR_NOT_FOUND) {
        rc = error_set(err, ERR_NOT_FOUND, "%s has neither %s nor %s", ck->name, single_file,
                       index_file);
    }
    if (!rc) rc = open_indexed(ck, index, len, path, err);
out:
    free(index);
    return rc;
}

int checkpoint_open_folder(struct checkpoint *ck, struct error *err)
{
    int rc = 0;
    TRY(read_config(ck, err));
    TRY(checkpoint_layout(&ck->cfg, &ck->layout, &ck->n_layout, err));
    TRY(open_tensors(ck, err));
out:
    return rc;
}
