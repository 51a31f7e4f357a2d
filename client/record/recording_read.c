/* Reading recorded texts back. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/json.h"
#include "client/record/recording.h"
#include "model/checkpoint/safetensors.h"

enum { LENGTH_BYTES = 8 };

static int refuse(const char *path, const char *why, struct error *err)
{
    return error_set(err, ERR_FORMAT, "%s is no text of outrider record: %s", path, why);
}

/* "2,15,27"; -1: it is no such list. */
static int read_boundaries(struct feature_wish *wish, const char *text)
{
    for (const char *at = text; *at;) {
        char *end;
        long boundary = strtol(at, &end, 10);
        bool ends_well = *end == '\0' || (*end == ',' && end[1] != '\0');
        if (end == at || !ends_well || boundary < 0 || boundary > INT16_MAX) return -1;
        if (wish->n == FEATURE_BOUNDARIES_MAX) return -1;
        wish->boundaries[wish->n++] = (int)boundary;
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int read_metadata(struct recording *r, struct feature_wish *wish,
                         const struct file_view *view, const char *path, struct error *err)
{
    uint64_t size;
    json_t *root = NULL;
    const char *boundaries, *normed, *n_prompt, *rule = "";
    int rc = 0;
    memcpy(&size, view->data, sizeof size); /* little-endian, as the whole program */
    const char *header = (const char *)view->data + LENGTH_BYTES;
    TRY(json_parse_text(&root, header, (size_t)size, path, err));
    if (json_unpack(json_member(root, "__metadata__"), "{ss ss ss s?s}", "boundaries", &boundaries,
                    "normed", &normed, "prompt_tokens", &n_prompt, "rule", &rule) ||
        read_boundaries(wish, boundaries)) {
        rc = refuse(path, "its metadata do not say what it holds", err);
        goto out;
    }
    wish->normed = strcmp(normed, "true") == 0;
    r->n_prompt = strtoul(n_prompt, NULL, 10);
    snprintf(r->rule, sizeof r->rule, "%s", rule);
out:
    json_decref(root);
    return rc;
}

/* NULL: it is not there, or has another shape. */
static const struct safetensors_entry *find(const struct safetensors *table, const char *name,
                                            const char *dtype, int n_dims)
{
    const struct safetensors_entry *entry = safetensors_find(table, name);
    return entry && strcmp(entry->dtype, dtype) == 0 && entry->n_dims == n_dims ? entry : NULL;
}

static int read_tensors(struct recording *r, const struct feature_wish *wish,
                        const struct safetensors *table, const struct file_view *view,
                        const char *path, struct error *err)
{
    const struct safetensors_entry *tokens = find(table, "tokens", "I32", 1);
    const struct safetensors_entry *features = find(table, "features", "BF16", 3);
    int rc = 0, n_columns = feature_wish_columns(wish);
    if (!tokens || !features || tokens->dims[0] < 2 || tokens->dims[0] > INT32_MAX ||
        features->dims[0] != tokens->dims[0] - 1 || features->dims[1] != (uint64_t)n_columns ||
        features->dims[2] < 1 || features->dims[2] > INT32_MAX || r->n_prompt < 1 ||
        r->n_prompt > tokens->dims[0]) {
        return refuse(path, "tokens and features do not fit together", err);
    }
    TRY(token_ids_append(&r->ids, (const int32_t *)(const void *)(view->data + tokens->begin),
                         (size_t)tokens->dims[0], err));
    r->n_columns = n_columns;
    r->dim = (int)features->dims[2];
    r->n_features = (size_t)features->dims[0];
    size_t n_bytes = (size_t)(features->end - features->begin);
    TRY(mem_array(&r->features, n_bytes / sizeof *r->features, sizeof *r->features, err));
    memcpy(r->features, view->data + features->begin, n_bytes);
out:
    return rc;
}

int recording_read(struct recording *r, struct feature_wish *wish, const char *path,
                   struct error *err)
{
    struct file_view view = {0};
    struct safetensors table = {0};
    int rc = 0;
    recording_free(r);
    *wish = (struct feature_wish){0};
    TRY(file_map(&view, path, err));
    TRY(safetensors_parse(&table, view.data, view.size_bytes, path, err));
    TRY(read_metadata(r, wish, &view, path, err));
    TRY(read_tensors(r, wish, &table, &view, path, err));
out:
    safetensors_free(&table);
    file_unmap(&view);
    return rc;
}
