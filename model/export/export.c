/* A model to a Hugging Face folder. The tensors are in the order of the layout, cut into shards
 * where the next one would not fit; the file format is that of model/checkpoint/safetensors.h.
 * config.json is written last, because without it no program takes the folder for a model. */
#include "model/export/export.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "model/export/folder.h"
#include "model/export/tensor_header.h"
#include "model/export/tensors.h"
#include "model/export/text.h"

enum {
    PATH_BYTES = 4096,
    CHUNK_BYTES = 2 << 20, /* written at a time; as much as the widest row a config may have */
    LEAST_BYTES_VOCAB = 256
};

struct exporting {
    struct checkpoint *ck;
    const struct export_options *options;
    struct export_folder folder;
    size_t *first; /* [n_shards + 1] of the layout */
    int n_shards;
    struct export_list list;
    uint64_t done_bytes;
    uint8_t *chunk;
};

/* Cuts the tensors into shards. */
static int cut_shards(struct exporting *e, struct error *err)
{
    uint64_t here = 0;
    int rc = mem_array(&e->first, e->list.n + 1, sizeof *e->first, err);
    if (rc) return rc;
    for (size_t i = 0; i < e->list.n; i++) {
        uint64_t bytes = e->list.tensors[i].n_bytes;
        if (i == 0 || here + bytes > e->options->shard_bytes) {
            e->first[e->n_shards++] = i;
            here = 0;
        }
        here += bytes;
    }
    e->first[e->n_shards] = e->list.n;
    return 0;
}

static void shard_name(const struct exporting *e, int shard, char name[EXPORT_NAME_BYTES])
{
    snprintf(name, EXPORT_NAME_BYTES, "model.safetensors");
    if (e->n_shards == 1) return;
    snprintf(name, EXPORT_NAME_BYTES, "model-%05d-of-%05d.safetensors", shard + 1, e->n_shards);
}

static int write_header(struct exporting *e, int shard, struct error *err)
{
    size_t n = e->first[shard + 1] - e->first[shard];
    struct tensor_header_entry *entries = NULL;
    struct buffer header = {0};
    json_t *metadata = json_pack("{ss}", "format", "pt");
    int rc = 0;
    if (!metadata) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for a table of tensors");
        goto out;
    }
    TRY(mem_array(&entries, n, sizeof *entries, err));
    for (size_t i = 0; i < n; i++) {
        const struct export_tensor *tensor = &e->list.tensors[e->first[shard] + i];
        entries[i] = (struct tensor_header_entry){.name = tensor->name,
                                                  .dtype = tensor->dtype,
                                                  .n_dims = tensor->n_dims,
                                                  .n_bytes = tensor->n_bytes};
        for (int d = 0; d < tensor->n_dims; d++) {
            entries[i].dims[d] = (uint64_t)tensor->dims[d];
        }
    }
    TRY(tensor_header_write(&header, metadata, entries, n, err));
    TRY(export_file_write(&e->folder, header.data, header.len, err));
out:
    json_decref(metadata);
    free(entries);
    buffer_free(&header);
    return rc;
}

static int report(struct exporting *e, uint64_t bytes, struct error *err)
{
    const struct export_options *o = e->options;
    e->done_bytes += bytes;
    if (!o->progress || o->progress(o->arg, e->done_bytes, e->list.n_bytes)) return 0;
    return error_set(err, ERR_CANCELLED, "interrupted; what was written of %s is removed",
                     e->folder.path);
}

/* As many whole rows at a time as a chunk holds. */
static int write_tensor(struct exporting *e, const struct export_tensor *tensor, struct error *err)
{
    const struct tensor_spec *spec = tensor->spec;
    struct weight weight = {0};
    int n = export_tensor_rows(tensor), rc = 0;
    size_t row_bytes = tensor->n_bytes / (size_t)n;
    int rows_at_once = CHUNK_BYTES / (int)row_bytes;
    TRY(checkpoint_find(e->ck, spec->name, spec->n_rows, spec->n_cols, &weight, err));
    for (int row = 0; row < n; row += rows_at_once) {
        int n_rows = n - row < rows_at_once ? n - row : rows_at_once;
        size_t n_bytes = (size_t)n_rows * row_bytes;
        export_tensor_read(&e->list, tensor, &weight, row, n_rows, e->chunk);
        TRY(export_file_write(&e->folder, e->chunk, n_bytes, err));
        TRY(report(e, n_bytes, err));
    }
out:
    return rc;
}

static int write_shard(struct exporting *e, int shard, struct error *err)
{
    char name[EXPORT_NAME_BYTES];
    int rc = 0;
    shard_name(e, shard, name);
    TRY(export_file_begin(&e->folder, name, err));
    TRY(write_header(e, shard, err));
    for (size_t i = e->first[shard]; i < e->first[shard + 1]; i++) {
        TRY(write_tensor(e, &e->list.tensors[i], err));
    }
    TRY(export_file_end(&e->folder, err));
out:
    return rc;
}

static int write_index(struct exporting *e, struct error *err)
{
    static const char index_name[] = "model.safetensors.index.json";
    char name[EXPORT_NAME_BYTES];
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out) return error_set(err, ERR_NO_MEMORY, "no memory for %s", index_name);
    fprintf(out, "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n  \"weight_map\": {",
            e->list.n_bytes);
    for (int shard = 0; shard < e->n_shards; shard++) {
        shard_name(e, shard, name);
        for (size_t i = e->first[shard]; i < e->first[shard + 1]; i++) {
            fprintf(out, "%s\n    \"%s\": \"%s\"", i ? "," : "", e->list.tensors[i].name, name);
        }
    }
    fputs("\n  }\n}\n", out);
    if (fclose(out)) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for %s", index_name);
        goto out;
    }
    rc = export_file_whole(&e->folder, index_name, text, len, err);
out:
    free(text);
    return rc;
}

/* A file that the source does not have is no error. */
static int copy_file(struct exporting *e, const char *name, bool *is_there, struct error *err)
{
    char path[PATH_BYTES];
    struct file_view view = {0};
    *is_there = false;
    if (snprintf(path, sizeof path, "%s/%s", checkpoint_name(e->ck), name) >= PATH_BYTES) {
        return error_set(err, ERR_ARGUMENT, "the path of %s in %.100s... is too long", name,
                         checkpoint_name(e->ck));
    }
    int rc = file_map(&view, path, err);
    if (rc) return rc == ERR_NOT_FOUND ? 0 : rc;
    *is_there = true;
    rc = export_file_whole(&e->folder, name, view.data, view.size_bytes, err);
    file_unmap(&view);
    return rc;
}

static int copy_tokenizer(struct exporting *e, struct export_result *result, struct error *err)
{
    static const char *const names[] = {
        "tokenizer_config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "tokenizer.model",
        "vocab.json",
        "merges.txt",
    };
    bool is_there = false;
    int rc = 0;
    TRY(copy_file(e, "tokenizer.json", &result->has_tokenizer, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        TRY(copy_file(e, names[i], &is_there, err));
    }
out:
    return rc;
}

static int make_tokenizer(struct exporting *e, struct export_result *result, struct error *err)
{
    const struct model_config *cfg = checkpoint_config(e->ck);
    char *text = NULL, *config = NULL;
    size_t len = 0, config_len = 0;
    int rc = 0;
    if (cfg->vocab_size < LEAST_BYTES_VOCAB) return 0;
    TRY(export_tokenizer_text(cfg->vocab_size, &text, &len, err));
    TRY(export_tokenizer_config_text(cfg->max_positions, &config, &config_len, err));
    TRY(export_file_whole(&e->folder, "tokenizer.json", text, len, err));
    TRY(export_file_whole(&e->folder, "tokenizer_config.json", config, config_len, err));
    result->has_tokenizer = true;
out:
    free(text);
    free(config);
    return rc;
}

static int write_config(struct exporting *e, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    struct model_config cfg = *checkpoint_config(e->ck);
    cfg.stored = e->list.form;
    cfg.stored_group = cfg.stored == WEIGHTS_BF16 ? 0 : QUANT_GROUP;
    TRY(export_config_text(&cfg, &text, &len, err));
    TRY(export_file_whole(&e->folder, "config.json", text, len, err));
out:
    free(text);
    return rc;
}

static int write_all(struct exporting *e, struct export_result *result, struct error *err)
{
    int rc = 0;
    for (int shard = 0; shard < e->n_shards; shard++) {
        TRY(write_shard(e, shard, err));
    }
    if (e->n_shards > 1) TRY(write_index(e, err));
    TRY(checkpoint_is_synthetic(e->ck) ? make_tokenizer(e, result, err)
                                       : copy_tokenizer(e, result, err));
    TRY(write_config(e, err));
    TRY(export_folder_publish(&e->folder, err));
    result->n_bytes = e->list.n_bytes;
    result->n_shards = e->n_shards;
out:
    return rc;
}

int model_export(const char *model, const char *folder, const struct export_options *options,
                 struct export_result *result, struct error *err)
{
    struct exporting e = {.options = options};
    int rc = 0;
    *result = (struct export_result){0};
    TRY(checkpoint_open(&e.ck, model, err));
    if (checkpoint_is_gguf(e.ck)) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s is a GGUF file, which is not exported, because a folder needs the "
                       "tokenizer.json and the weights that it was made from; export that folder, "
                       "or serve the file as it is",
                       checkpoint_name(e.ck));
        goto out;
    }
    TRY(export_config_check(checkpoint_config(e.ck), err));
    checkpoint_expect_whole(e.ck);
    TRY(export_list_init(&e.list, e.ck, options->form, err));
    TRY(cut_shards(&e, err));
    TRY(mem_array(&e.chunk, CHUNK_BYTES, sizeof *e.chunk, err));
    rc = export_folder_open(&e.folder, folder, err);
    if (rc) {
        e.folder.path = NULL; /* not ours */
        goto out;
    }
    TRY(export_folder_needs(&e.folder, e.list.n_bytes, err));
    TRY(write_all(&e, result, err));
out:
    export_folder_close(&e.folder);
    free(e.chunk);
    free(e.first);
    export_list_free(&e.list);
    checkpoint_close(e.ck);
    return rc;
}
