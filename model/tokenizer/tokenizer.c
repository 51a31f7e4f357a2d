/* The tokenizer as a whole: opening, closing and what it says about its tokens. */
#include "model/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/system/hub_cache.h"
#include "base/system/model_folder.h"
#include "base/text/json.h"
#include "model/tokenizer/internal.h"
#include "model/tokenizer/named_tokens.h"

enum { MAX_PATH_BYTES = 4096 };
static const size_t max_file_bytes = (size_t)256 << 20;

/* A mapped file of the folder; one that is missing gives no data. */
static int map_file(struct file_view *view, char path[MAX_PATH_BYTES], const char *folder,
                    const char *name, struct error *err)
{
    *view = (struct file_view){0};
    int len = snprintf(path, MAX_PATH_BYTES, "%s/%s", folder, name);
    if (len < 0 || len >= MAX_PATH_BYTES) {
        return error_set(err, ERR_ARGUMENT, "the folder's path is longer than %d bytes",
                         (int)MAX_PATH_BYTES);
    }
    int rc = file_map(view, path, err);
    if (!rc && view->size_bytes > max_file_bytes) {
        return error_set(err, ERR_FORMAT, "%s has %zu bytes, more than %zu", path, view->size_bytes,
                         max_file_bytes);
    }
    return rc;
}

/* A JSON file of the folder beside tokenizer.json; *root is NULL where it is missing. */
static int read_beside(json_t **root, const char *folder, const char *name, struct error *err)
{
    char path[MAX_PATH_BYTES];
    struct file_view view;
    *root = NULL;
    int rc = map_file(&view, path, folder, name, err);
    if (rc == ERR_NOT_FOUND) return 0;
    if (!rc) rc = json_parse_text(root, (const char *)view.data, view.size_bytes, path, err);
    file_unmap(&view);
    return rc;
}

/* Takes the files over. */
static int parse_all(struct tokenizer **tok, const char *json, size_t len,
                     struct named_files *files, const char *origin, struct error *err)
{
    int rc = 0;
    json_t *root = NULL, *named = NULL;
    TRY(json_parse_text(&root, json ? json : "", len, origin, err));
    TRY(named_tokens_gather(&named, root, files, err));
    TRY(mem_array(tok, 1, sizeof **tok, err));
    TRY(tokenizer_read(*tok, root, named, NULL, origin, err));
out:
    json_decref(root);
    json_decref(named);
    json_decref(files->config);
    json_decref(files->map);
    json_decref(files->added);
    if (rc) {
        tokenizer_close(*tok);
        *tok = NULL;
    }
    return rc;
}

int tokenizer_open_gguf(struct tokenizer **tok, const struct gguf *gguf, struct error *err)
{
    int rc = mem_array(tok, 1, sizeof **tok, err);
    if (!rc) rc = tokenizer_read_gguf(*tok, gguf, err);
    if (rc) {
        tokenizer_close(*tok);
        *tok = NULL;
    }
    return rc;
}

static int open_gguf(struct tokenizer **tok, const char *path, struct error *err)
{
    struct gguf *gguf = NULL;
    int rc = gguf_open(&gguf, path, err);
    if (!rc) rc = tokenizer_open_gguf(tok, gguf, err);
    gguf_close(gguf);
    return rc;
}

int tokenizer_open(struct tokenizer **tok, const char *name, struct error *err)
{
    int rc = 0;
    char path[MAX_PATH_BYTES], folder[HUB_PATH_BYTES];
    struct file_view file = {0};
    struct named_files files = {0};
    *tok = NULL;
    TRY(hub_cache_resolve(folder, name, err));
    if (gguf_is_file(folder)) return open_gguf(tok, folder, err);
    rc = map_file(&file, path, folder, "tokenizer.json", err);
    if (rc == ERR_NOT_FOUND || rc == ERR_IO) {
        rc = model_folder_explain(folder, "tokenizer.json", rc, err);
    }
    if (rc) goto out;
    TRY(read_beside(&files.config, folder, "tokenizer_config.json", err));
    TRY(read_beside(&files.map, folder, "special_tokens_map.json", err));
    TRY(read_beside(&files.added, folder, "added_tokens.json", err));
    rc = parse_all(tok, (const char *)file.data, file.size_bytes, &files, path, err);
    files = (struct named_files){0};
out:
    json_decref(files.config);
    json_decref(files.map);
    json_decref(files.added);
    file_unmap(&file);
    return rc;
}

int tokenizer_parse(struct tokenizer **tok, const char *json, size_t len, const char *config_json,
                    size_t config_len, const char *origin, struct error *err)
{
    struct named_files files = {0};
    int rc = 0;
    *tok = NULL;
    if (config_json) {
        rc = json_parse_text(&files.config, config_json, config_len, "tokenizer_config.json", err);
        if (rc) return error_wrap(err, "beside %s", origin);
    }
    return parse_all(tok, json, len, &files, origin, err);
}

static int fill_bytes(struct tokenizer *tok, int n_vocab, struct error *err)
{
    int rc = 0;
    TRY(token_table_init(&tok->table, n_vocab, err));
    TRY(pair_map_init(&tok->bpe.pairs, 0, err));
    for (int id = 0; id < n_vocab; id++)
        tok->table.flags[id] = TOKEN_PRESENT;
    for (int byte = 0; byte < 256; byte++) {
        char value = (char)byte;
        tok->bpe.byte_id[byte] = byte;
        TRY(token_table_set_piece(&tok->table, byte, &value, 1, err));
    }
    tok->bpe.unk_id = -1;
    tok->bpe.byte_level = true;
    tok->decoder.byte_level = true;
out:
    return rc;
}

int tokenizer_open_bytes(struct tokenizer **tok, int n_vocab, struct error *err)
{
    *tok = NULL;
    if (n_vocab < 256 || n_vocab > TOKENIZER_MAX_IDS) {
        return error_set(err, ERR_ARGUMENT, "a tokenizer of bytes has 256..%d ids, not %d",
                         (int)TOKENIZER_MAX_IDS, n_vocab);
    }
    int rc = mem_array(tok, 1, sizeof **tok, err);
    if (!rc) rc = fill_bytes(*tok, n_vocab, err);
    if (rc) {
        tokenizer_close(*tok);
        *tok = NULL;
    }
    return rc;
}

void tokenizer_close(struct tokenizer *tok)
{
    if (!tok) return;
    normalizer_chain_free(&tok->normalizers);
    normalizer_chain_free(&tok->decoder.replaces);
    for (int i = 0; i < tok->n_splitters; i++)
        pattern_free(&tok->splitters[i].pattern);
    added_set_free(&tok->raw);
    added_set_free(&tok->normalized);
    token_ids_free(&tok->prefix);
    token_ids_free(&tok->suffix);
    free(tok->bpe.pairs.slots);
    token_table_free(&tok->table);
    free(tok);
}

const char *tokenizer_remark(const struct tokenizer *tok)
{
    return tok->remark;
}

void tokenizer_count_added(const struct tokenizer *tok, size_t *n_before, size_t *n_after)
{
    *n_before = tok->prefix.n;
    *n_after = tok->suffix.n;
}

int tokenizer_vocab_size(const struct tokenizer *tok)
{
    return tok->table.n_ids;
}

int32_t tokenizer_find(const struct tokenizer *tok, const char *content, size_t len)
{
    return token_table_find(&tok->table, content, len, TOKEN_PRESENT);
}

bool tokenizer_is_special(const struct tokenizer *tok, int32_t id)
{
    return id >= 0 && id < tok->table.n_ids && (tok->table.flags[id] & TOKEN_SPECIAL);
}

uint64_t tokenizer_fingerprint(const struct tokenizer *tok)
{
    return token_table_fingerprint(&tok->table);
}

const char *tokenizer_piece(const struct tokenizer *tok, int32_t id, size_t *len)
{
    *len = 0;
    if (id < 0 || id >= tok->table.n_ids) return "";
    struct text piece = token_table_piece(&tok->table, id);
    *len = piece.len;
    return piece.data;
}

const char *tokenizer_content(const struct tokenizer *tok, int32_t id, size_t *len)
{
    *len = 0;
    if (id < 0 || id >= tok->table.n_ids) return "";
    struct text content = token_table_content(&tok->table, id);
    if (!content.len) return tokenizer_piece(tok, id, len);
    *len = content.len;
    return content.data;
}
