/* Opens a Hugging Face folder: config.json, generation_config.json if there is one, and the tensors
 * in model.safetensors or in the files that model.safetensors.index.json lists. Files are mapped,
 * so that several ranks on one host share one copy in the page cache. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/system/hub_cache.h"
#include "base/system/model_folder.h"
#include "base/text/ending.h"
#include "base/text/json.h"
#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/internal.h"

enum {
    PATH_BYTES = CHECKPOINT_PATH_BYTES,
    CONFIG_MOST_BYTES = 4 << 20,
    INDEX_MOST_BYTES = 100 << 20,
    MOST_FILES = 4096
};

static const char index_file[] = "model.safetensors.index.json";
static const char single_file[] = "model.safetensors";

void checkpoint_close_files(struct checkpoint *ck)
{
    for (size_t i = 0; i < ck->n_files; i++) {
        if (!ck->files[i].is_lent) file_unmap(&ck->files[i].view);
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

int checkpoint_read_config(const struct checkpoint *ck, char path[CHECKPOINT_PATH_BYTES],
                           char **text, size_t *len, struct error *err)
{
    int rc = 0;
    TRY(join_path(path, ck->name, "config.json", err));
    rc = file_read_text(text, len, path, CONFIG_MOST_BYTES, err);
    if (rc == ERR_NOT_FOUND || rc == ERR_IO) {
        rc = model_folder_explain(ck->name, "config.json", rc, err);
    }
out:
    return rc;
}

static int read_config(struct checkpoint *ck, struct config_rest *rest, struct error *err)
{
    char path[PATH_BYTES], generation_path[PATH_BYTES];
    char *config = NULL, *generation = NULL;
    size_t config_len = 0, generation_len = 0;
    int rc = 0;
    TRY(checkpoint_read_config(ck, path, &config, &config_len, err));
    TRY(join_path(generation_path, ck->name, "generation_config.json", err));
    rc = file_read_text(&generation, &generation_len, generation_path, CONFIG_MOST_BYTES, err);
    if (rc && rc != ERR_NOT_FOUND) goto out;
    TRY(config_parse(&ck->cfg, config, config_len, generation, generation_len, path, rest, err));
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
        .file = file->name,
        .weight = {.data = file->view.data + entry->begin},
    };
}

/* The tensors of all files, also those that an index does not name, as transformers reads them. */
static int add_tensors(struct checkpoint *ck, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < ck->n_files; i++) {
        n += ck->files[i].table.n_entries;
    }
    int rc = mem_array(&ck->tensors, n, sizeof *ck->tensors, err);
    for (size_t i = 0; !rc && i < ck->n_files; i++) {
        const struct safetensors *table = &ck->files[i].table;
        for (size_t k = 0; k < table->n_entries; k++) {
            add_tensor(ck, &ck->files[i], &table->entries[k]);
        }
    }
    return rc;
}

int checkpoint_open_single(struct checkpoint *ck, const char *file, struct error *err)
{
    int rc = 0;
    TRY(mem_array(&ck->files, 1, sizeof *ck->files, err));
    TRY(open_file(ck, file, err));
    TRY(add_tensors(ck, err));
out:
    return rc;
}

/* True if this names a file of the folder itself: no path that leads out of it, nothing hidden. */
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

static int open_mapped(struct checkpoint *ck, const char *name, const json_t *value,
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
    if (!safetensors_find(&ck->files[at].table, name)) {
        rc = error_set(
            err, ERR_FORMAT,
            "%s: tensor \"%.100s\" is not in %.100s, which is cut short or of another model",
            origin, name, file);
    }
out:
    return rc;
}

bool checkpoint_has_file(const struct checkpoint *ck, const char *name)
{
    char path[PATH_BYTES];
    struct error ignored;
    struct stat st;
    return !join_path(path, ck->name, name, &ignored) && !stat(path, &st);
}

/* The files of a map, each once, before one is opened: names and counts those that are missing. */
static int check_files(const struct checkpoint *ck, json_t *map, const char *origin,
                       struct error *err)
{
    char first[256] = "", advice[HUB_NAME_BYTES + 64];
    int n_files = 0, n_missing = 0, rc = 0;
    json_t *seen = json_object();
    if (!seen) return error_set(err, ERR_NO_MEMORY, "no memory for the files of an index");
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        const char *file = json_string_value(json_object_iter_value(at));
        if (!is_plain_name(file) || json_object_get(seen, file)) continue;
        json_object_set_new(seen, file, json_true());
        n_files++;
        if (checkpoint_has_file(ck, file)) continue;
        n_missing++;
        if (!*first || strcmp(file, first) < 0) snprintf(first, sizeof first, "%.200s", file);
    }
    hub_cache_advice(ck->name, advice, sizeof advice);
    if (n_missing) {
        rc = error_set(err, ERR_NOT_FOUND, "%s names %d file%s, of which %d %s not there: %s%s%s",
                       origin, n_files, n_files == 1 ? "" : "s", n_missing,
                       n_missing == 1 ? "is" : "are", first, n_missing == 1 ? "" : " and others",
                       advice);
    }
    json_decref(seen);
    return rc;
}

/* Some tools write a wrong sum, and nothing is computed from it: a remark, no error. */
static void compare_size(struct checkpoint *ck, const json_t *root)
{
    const json_t *size = json_object_get(json_object_get(root, "metadata"), "total_size");
    uint64_t sum = 0;
    for (size_t i = 0; i < ck->n_tensors; i++) {
        sum += ck->tensors[i].entry->end - ck->tensors[i].entry->begin;
    }
    if (!json_is_integer(size) || (uint64_t)json_integer_value(size) == sum) return;
    snprintf(ck->remarks[CHECKPOINT_INDEX_SIZE], sizeof ck->remarks[0],
             "%s says that the tensors have %" JSON_INTEGER_FORMAT " bytes, but the files have "
             "%" PRIu64 ": files and index may be of different models",
             index_file, json_integer_value(size), sum);
}

static int open_indexed(struct checkpoint *ck, const char *index, size_t len, const char *origin,
                        struct error *err)
{
    json_t *root = NULL;
    int rc = 0;
    TRY(json_parse_text(&root, index, len, origin, err));
    json_t *map = json_object_get(root, "weight_map");
    if (!json_object_size(map)) {
        rc = error_set(err, ERR_FORMAT, "%s lacks the object \"weight_map\", or it is empty",
                       origin);
        goto out;
    }
    TRY(check_files(ck, map, origin, err));
    TRY(mem_array(&ck->files, MOST_FILES, sizeof *ck->files, err));
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        TRY(open_mapped(ck, json_object_iter_key(at), json_object_iter_value(at), origin, err));
    }
    TRY(add_tensors(ck, err));
    compare_size(ck, root);
out:
    json_decref(root);
    return rc;
}

int checkpoint_open_tensors(struct checkpoint *ck, struct error *err)
{
    char path[PATH_BYTES], advice[HUB_NAME_BYTES + 64];
    char *index = NULL;
    size_t len = 0;
    int rc = checkpoint_open_single(ck, single_file, err);
    if (rc != ERR_NOT_FOUND) return rc;
    checkpoint_close_files(ck);
    TRY(join_path(path, ck->name, index_file, err));
    rc = file_read_text(&index, &len, path, INDEX_MOST_BYTES, err);
    if (rc == ERR_NOT_FOUND) {
        hub_cache_advice(ck->name, advice, sizeof advice);
        rc = error_set(err, ERR_NOT_FOUND, "%s has neither %s nor %s%s", ck->name, single_file,
                       index_file, advice);
    }
    if (!rc) rc = open_indexed(ck, index, len, path, err);
out:
    free(index);
    return rc;
}

/* "-00002-of-00003.safetensors" of a numbered file, from its "-of-" on; NULL: it has no number. */
static const char *shard_count(const char *file)
{
    const char *of = NULL;
    for (const char *at = strstr(file, "-of-"); at; at = strstr(at + 1, "-of-")) {
        of = at;
    }
    return of && strspn(of + 4, "0123456789") == strcspn(of + 4, ".") ? of : NULL;
}

static bool is_open(const struct checkpoint *ck, const char *file)
{
    for (size_t i = 0; i < ck->n_files; i++) {
        if (strcmp(ck->files[i].name, file) == 0) return true;
    }
    return false;
}

/* True if an opened file is numbered as this one, so that the index should have named it. */
static bool has_brother(const struct checkpoint *ck, const char *file)
{
    const char *count = shard_count(file);
    for (size_t i = 0; count && i < ck->n_files; i++) {
        const char *other = shard_count(ck->files[i].name);
        if (other && strcmp(other, count) == 0) return true;
    }
    return false;
}

/* Files of weights that are not read. Mistral's own format, of the same weights, is called
 * consolidated. */
static bool is_stray(const struct checkpoint *ck, const char *file)
{
    return ending_is(file, ".safetensors") && *file != '.' &&
           strncmp(file, "consolidated", 12) != 0 && !is_open(ck, file);
}

/* Names the first of them, in the order of the alphabet; a part of this very model is an error. */
static int look_for_strays(struct checkpoint *ck, struct error *err)
{
    char *remark = ck->remarks[CHECKPOINT_STRAY_FILES], first[256] = "";
    struct dirent *entry;
    DIR *folder = opendir(ck->name);
    int n = 0, rc = 0;
    while (folder && (entry = readdir(folder))) {
        const char *file = entry->d_name;
        if (!is_stray(ck, file)) continue;
        if (!rc && has_brother(ck, file)) {
            rc = error_set(err, ERR_FORMAT,
                           "%s: %s does not name the file %.100s, which belongs to the same model; "
                           "get the index again, or take the file away",
                           ck->name, index_file, file);
        }
        if (n++ == 0 || strcmp(file, first) < 0) snprintf(first, sizeof first, "%s", file);
    }
    if (folder) closedir(folder);
    if (n > 0) {
        snprintf(remark, sizeof ck->remarks[0],
                 "the folder has %d file%s of weights that %s not "
                 "read: %.200s%s",
                 n, n == 1 ? "" : "s", n == 1 ? "is" : "are", first, n == 1 ? "" : " and others");
    }
    return rc;
}

int checkpoint_open_folder(struct checkpoint *ck, struct config_rest *rest, struct error *err)
{
    int rc = 0;
    TRY(read_config(ck, rest, err));
    TRY(checkpoint_layout(&ck->cfg, &ck->layout, &ck->n_layout, err));
    TRY(checkpoint_open_tensors(ck, err));
    TRY(checkpoint_rename_tensors(ck, rest->is_text_part, err));
    TRY(look_for_strays(ck, err));
out:
    return rc;
}
