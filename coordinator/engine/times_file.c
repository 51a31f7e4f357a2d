/* A JSON file of the planner's tables. */
#include "coordinator/engine/times_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "coordinator/engine/kept_json.h"
#include "model/backend/pack_folder.h"
#include "model/checkpoint/layers.h"
#include "speculation/planner/points.h"

enum { VERSION = 1, FILE_BYTES_MAX = 1 << 20 };

int times_file_find(struct times_file *file, const char *folder,
                    const char *const drafts[PLANNER_MODELS], const char *draft_kernels,
                    const struct target_description *group, struct error *err)
{
    char found[PACK_FOLDER_BYTES], *model = NULL;
    const char *draft = drafts[0];
    /* Without a folder of its own: no draft model is no folder either. */
    bool is_synthetic = strncmp(draft, "synthetic:", 10) == 0 || strcmp(draft, "none") == 0;
    int rc = 0;
    const char *name = strncmp(draft, "head:", 5) == 0 ? draft + 5 : draft;
    TRY(layers_strip(&model, name, err));
    TRY(pack_folder_find(found, folder, model, is_synthetic, err));
    /* A long name is cut, and the hash of all of it tells names apart that differ after the cut. So
     * does that of further models, which are not named. */
    uint64_t whole = strlen(draft) > 200 ? XXH3_64bits(draft, strlen(draft)) : 0;
    for (int m = 1; m < PLANNER_MODELS && drafts[m]; m++) {
        whole = XXH3_64bits_withSeed(drafts[m], strlen(drafts[m]), whole);
    }
    snprintf(file->pair, sizeof file->pair,
             "draft %.200s%.0" PRIx64 " %.31s, target %016" PRIx64
             " %.31s %.31s, %d ranks, %d threads",
             draft, whole, draft_kernels, group->model_fingerprint, group->arithmetic,
             group->kernels, group->n_ranks, group->n_threads);
    uint64_t hash = XXH3_64bits(file->pair, strlen(file->pair));
    snprintf(file->path, sizeof file->path, "%s/times-%016" PRIx64 ".json", found, hash);
out:
    free(model);
    return rc;
}

/* ---- writing ---- */

/* [[rows, us, n], ...] of the points that are used. */
static json_t *points_json(const struct planner_point *points)
{
    json_t *list = json_array();
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        if (!(points[i].us > 0)) continue;
        json_array_append_new(list, json_pack("[ffi]", points[i].rows, points[i].us, points[i].n));
    }
    return list;
}

int times_file_write(const struct times_file *file, const struct planner *planner,
                     struct error *err)
{
    struct planner_tables tables;
    planner_tables_get(planner, &tables);
    json_t *further = json_array();
    for (int m = 1; m < PLANNER_MODELS && tables.draft[m][0].us > 0; m++) {
        json_array_append_new(further, json_pack("{sf so}", "read_us", tables.read_us[m], "draft",
                                                 points_json(tables.draft[m])));
    }
    json_t *root = json_pack("{si ss sf so so so so}", "version", VERSION, "pair", file->pair,
                             "read_us", tables.read_us[0], "draft", points_json(tables.draft[0]),
                             "step", points_json(tables.step), "rest", points_json(tables.rest),
                             "further_drafts", further);
    return kept_json_write(file->path, root, err);
}

/* ---- reading ---- */

static int read_draft(const json_t *draft, const struct times_file *file, int model,
                      struct planner_tables *tables, struct error *err)
{
    int rc = json_read_double(draft, "read_us", &tables->read_us[model], file->path, err);
    return rc ? rc : planner_points_read(draft, "draft", file->path, tables->draft[model], err);
}

static int read_tables(const json_t *root, const struct times_file *file,
                       struct planner_tables *tables, struct error *err)
{
    const char *pair = "";
    int rc = 0, version = 0;
    memset(tables, 0, sizeof *tables);
    TRY(json_read_int(root, "version", 0, INT32_MAX, &version, file->path, err));
    TRY(json_read_string(root, "pair", &pair, file->path, err));
    if (version != VERSION || strcmp(pair, file->pair) != 0) {
        rc = error_set(err, ERR_FORMAT,
                       "%s holds version %d of '%.200s', not version %d of '%.200s'", file->path,
                       version, pair, VERSION, file->pair);
        goto out;
    }
    TRY(read_draft(root, file, 0, tables, err));
    const json_t *further = json_member(root, "further_drafts"), *draft;
    size_t i;
    json_array_foreach(further, i, draft)
    {
        if (i + 1 >= PLANNER_MODELS) break;
        TRY(read_draft(draft, file, (int)i + 1, tables, err));
    }
    TRY(planner_points_read(root, "step", file->path, tables->step, err));
    TRY(planner_points_read(root, "rest", file->path, tables->rest, err));
out:
    return rc;
}

int times_file_read(const struct times_file *file, struct planner *planner, struct error *err)
{
    int rc = 0;
    char *text = NULL;
    size_t len;
    json_t *root = NULL;
    struct planner_tables tables;
    TRY(file_read_text(&text, &len, file->path, FILE_BYTES_MAX, err));
    TRY(json_parse_text(&root, text, len, file->path, err));
    TRY(read_tables(root, file, &tables, err));
    planner_tables_set(planner, &tables);
out:
    json_decref(root);
    free(text);
    return rc;
}
