/* A JSON file of a head's table: of each trial its counts, in the order of the trials. */
#include "coordinator/engine/proof_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "coordinator/engine/kept_json.h"
#include "model/backend/pack_folder.h"

enum { VERSION = 1, FILE_BYTES_MAX = 1 << 16, STARTS_MAX = 1 << 20 };

int proof_file_find(struct proof_file *file, const char *folder, const char *head, uint64_t digest,
                    const struct target_description *group, struct error *err)
{
    char found[PACK_FOLDER_BYTES];
    int rc = 0;
    TRY(pack_folder_find(found, folder, head, false, err));
    snprintf(file->pair, sizeof file->pair, "head %016" PRIx64 ", target %016" PRIx64 " %.31s",
             digest, group->model_fingerprint, group->arithmetic);
    uint64_t hash = XXH3_64bits(file->pair, strlen(file->pair));
    snprintf(file->path, sizeof file->path, "%s/head-%016" PRIx64 ".json", found, hash);
out:
    return rc;
}

/* Means that a trial has no score. */
#define SCORE_LEAST (-1e30)

/* ---- writing ---- */

static json_t *counts_json(const int *counts)
{
    json_t *list = json_array();
    for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
        json_array_append_new(list, json_integer(counts[s]));
    }
    return list;
}

static json_t *table_json(const struct proof_file *file, const struct head_table *table)
{
    json_t *trials = json_array();
    for (int i = 0; i < table->n_trials; i++) {
        const struct head_trial *t = &table->trials[i];
        json_array_append_new(trials,
                              json_pack("{ss sb so so sf si si}", "reading", t->reading.name,
                                        "norm_before_residual", t->keeps_normed, "right",
                                        counts_json(t->n_right), "kept", counts_json(t->n_kept),
                                        "score", isfinite(t->score) ? t->score : SCORE_LEAST,
                                        "better", t->n_better, "worse", t->n_worse));
    }
    return json_pack("{si ss si so}", "version", VERSION, "pair", file->pair, "starts",
                     table->n_starts, "trials", trials);
}

int proof_file_write(const struct proof_file *file, const struct head_table *table,
                     struct error *err)
{
    return kept_json_write(file->path, table_json(file, table), err);
}

/* ---- reading ---- */

static int read_counts(const json_t *trial, const char *key, int *counts, int most,
                       const char *path, struct error *err)
{
    const json_t *list = json_member(trial, key);
    bool is_right = json_array_size(list) == HEAD_TABLE_GUESSES;
    for (size_t s = 0; s < HEAD_TABLE_GUESSES && is_right; s++) {
        const json_t *count = json_array_get(list, s);
        json_int_t value = json_integer_value(count);
        is_right = json_is_integer(count) && value >= 0 && value <= most;
        counts[s] = (int)value;
    }
    if (is_right) return 0;
    return error_set(err, ERR_FORMAT, "%s: \"%s\" of a trial are not %d counts of at most %d", path,
                     key, HEAD_TABLE_GUESSES, most);
}

static int read_trial(const json_t *from, struct head_trial *trial, int n_starts, const char *path,
                      struct error *err)
{
    const char *name = "";
    int rc = 0;
    bool keeps_normed = false;
    TRY(json_read_string(from, "reading", &name, path, err));
    TRY(json_read_bool(from, "norm_before_residual", &keeps_normed, path, err));
    if (strcmp(name, trial->reading.name) != 0 || keeps_normed != trial->keeps_normed) {
        rc = error_set(err, ERR_FORMAT, "%s has the reading '%.40s' where '%s' is tried", path,
                       name, trial->reading.name);
        goto out;
    }
    TRY(read_counts(from, "right", trial->n_right, n_starts, path, err));
    TRY(read_counts(from, "kept", trial->n_kept, n_starts, path, err));
    TRY(json_read_double(from, "score", &trial->score, path, err));
    TRY(json_read_int(from, "better", 0, n_starts, &trial->n_better, path, err));
    TRY(json_read_int(from, "worse", 0, n_starts, &trial->n_worse, path, err));
out:
    return rc;
}

static int read_table(const json_t *root, const struct proof_file *file, struct head_table *table,
                      struct error *err)
{
    const char *pair = "";
    int rc = 0, version = 0, n_starts = 0;
    const json_t *trials = json_member(root, "trials");
    TRY(json_read_int(root, "version", 0, INT32_MAX, &version, file->path, err));
    TRY(json_read_string(root, "pair", &pair, file->path, err));
    if (version != VERSION || strcmp(pair, file->pair) != 0 ||
        json_array_size(trials) != (size_t)table->n_trials) {
        return error_set(err, ERR_FORMAT,
                         "%s holds version %d of '%.200s' with %zu trials, not version %d of '%s' "
                         "with %d",
                         file->path, version, pair, json_array_size(trials), VERSION, file->pair,
                         table->n_trials);
    }
    TRY(json_read_int(root, "starts", 1, STARTS_MAX, &n_starts, file->path, err));
    if (n_starts == 0) return error_set(err, ERR_FORMAT, "%s has no \"starts\"", file->path);
    table->n_starts = n_starts;
    for (int i = 0; i < table->n_trials; i++) {
        TRY(read_trial(json_array_get(trials, (size_t)i), &table->trials[i], table->n_starts,
                       file->path, err));
    }
    head_table_choose(table);
out:
    return rc;
}

int proof_file_read(const struct proof_file *file, struct head_table *table, struct error *err)
{
    struct head_table read = *table;
    int rc = 0;
    char *text = NULL;
    size_t len;
    json_t *root = NULL;
    TRY(file_read_text(&text, &len, file->path, FILE_BYTES_MAX, err));
    TRY(json_parse_text(&root, text, len, file->path, err));
    TRY(read_table(root, file, &read, err));
    *table = read;
out:
    json_decref(root);
    free(text);
    return rc;
}
