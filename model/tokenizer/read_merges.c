/* The merges of a tokenizer: the list in tokenizer.json, or that of a GGUF file, whose merges may
 * also follow from its tokens (rank_merges.c). Merges name tokens that exist. */
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "model/tokenizer/internal.h"

struct merge_reader {
    struct tokenizer *tok;
    const char *origin;
    struct text_buf joined;
};

static const char space_mark[] = "\xe2\x96\x81";

/* "a b" */
static void split_text(struct text text, struct text *left, struct text *right)
{
    const char *blank = memchr(text.data, ' ', text.len);
    if (!blank) return;
    size_t n = (size_t)(blank - text.data), rest = text.len - n - 1;
    if (memchr(blank + 1, ' ', rest)) return;
    *left = (struct text){text.data, n};
    *right = (struct text){blank + 1, rest};
}

/* "a b" or ["a", "b"]. */
static void split_json(const json_t *merge, struct text *left, struct text *right)
{
    const json_t *a = json_array_get(merge, 0);
    const json_t *b = json_array_get(merge, 1);
    if (json_is_string(merge)) {
        split_text((struct text){json_string_value(merge), json_string_length(merge)}, left, right);
    } else if (json_array_size(merge) == 2 && json_is_string(a) && json_is_string(b)) {
        *left = (struct text){json_string_value(a), json_string_length(a)};
        *right = (struct text){json_string_value(b), json_string_length(b)};
    }
}

static int find_merge_token(const struct merge_reader *r, const char *data, size_t len,
                            size_t index, int32_t *id, struct error *err)
{
    *id = token_table_find(&r->tok->table, data, len, TOKEN_MODEL);
    if (*id >= 0) return 0;
    return error_set(err, ERR_FORMAT,
                     "%s: merge %zu names \"%.*s\", which is not in the vocabulary", r->origin,
                     index, text_shown_length(data, len, 80), data);
}

static bool begins_with_mark(struct text text)
{
    return text.len >= 3 && memcmp(text.data, space_mark, 3) == 0;
}

static bool ends_with_mark(struct text text)
{
    return text.len >= 3 && memcmp(text.data + text.len - 3, space_mark, 3) == 0;
}

static void put_merge(struct bpe *bpe, struct text left, struct text right,
                      struct ranked_merge merge, uint32_t rank)
{
    pair_map_put(&bpe->pairs, merge.left, merge.right, rank, merge.id);
    if (begins_with_mark(right) && !ends_with_mark(left)) bpe->cut_before_space = false;
}

static int read_merge(struct merge_reader *r, struct text left, struct text right, size_t index,
                      uint32_t rank, struct error *err)
{
    struct ranked_merge merge;
    int rc = 0;
    r->joined.len = 0;
    if (!left.len || !right.len) {
        return error_set(err, ERR_FORMAT, "%s: merge %zu is not a pair of tokens", r->origin,
                         index);
    }
    TRY(find_merge_token(r, left.data, left.len, index, &merge.left, err));
    TRY(find_merge_token(r, right.data, right.len, index, &merge.right, err));
    TRY(text_buf_append(&r->joined, left.data, left.len, err));
    TRY(text_buf_append(&r->joined, right.data, right.len, err));
    TRY(find_merge_token(r, r->joined.data, r->joined.len, index, &merge.id, err));
    put_merge(&r->tok->bpe, left, right, merge, rank);
out:
    return rc;
}

static int read_json(struct merge_reader *r, const json_t *merges, struct error *err)
{
    size_t n = json_array_size(merges);
    uint32_t rank = 0;
    int rc = pair_map_init(&r->tok->bpe.pairs, n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        const json_t *merge = json_array_get(merges, i);
        const char *text = json_string_value(merge);
        struct text left = {0}, right = {0};
        if (text && strncmp(text, "#version", 8) == 0) continue; /* the head of a merges.txt */
        split_json(merge, &left, &right);
        rc = read_merge(r, left, right, i, rank++, err);
    }
    return rc;
}

static int read_list(struct merge_reader *r, const struct gguf_array *merges, struct error *err)
{
    const uint8_t *at = merges->data;
    if (merges->n > UINT32_MAX / 4) {
        return error_set(err, ERR_UNSUPPORTED, "%s has %llu merges, more than %u", r->origin,
                         (unsigned long long)merges->n, UINT32_MAX / 4);
    }
    int rc = pair_map_init(&r->tok->bpe.pairs, (size_t)merges->n, err);
    for (size_t i = 0; i < merges->n && !rc; i++) {
        struct gguf_text text = gguf_next_text(&at);
        struct text left = {0}, right = {0};
        split_text((struct text){text.data, text.len}, &left, &right);
        rc = read_merge(r, left, right, i, (uint32_t)i, err);
    }
    return rc;
}

static int make_list(struct merge_reader *r, const struct gguf_vocabulary *lists, struct error *err)
{
    const struct token_table *table = &r->tok->table;
    struct ranked_merge *merges = NULL;
    size_t n = 0;
    int rc = 0;
    TRY(rank_merges(&merges, &n, table, lists, err));
    TRY(pair_map_init(&r->tok->bpe.pairs, n, err));
    for (size_t i = 0; i < n; i++) {
        put_merge(&r->tok->bpe, token_table_content(table, merges[i].left),
                  token_table_content(table, merges[i].right), merges[i], (uint32_t)i);
    }
out:
    free(merges);
    return rc;
}

int tokenizer_read_merges(struct tokenizer *tok, const json_t *merges,
                          const struct gguf_vocabulary *lists, const char *origin,
                          struct error *err)
{
    struct merge_reader r = {.tok = tok, .origin = origin};
    struct bpe *bpe = &tok->bpe;
    int rc;
    bpe->cut_before_space = !bpe->byte_level && !bpe->ignore_merges &&
                            token_table_find(&tok->table, space_mark, 3, TOKEN_MODEL) >= 0;
    if (!lists) {
        rc = read_json(&r, merges, err);
    } else if (lists->ranking == GGUF_RANK_MERGES) {
        rc = read_list(&r, &lists->merges, err);
    } else {
        rc = make_list(&r, lists, err);
    }
    text_buf_free(&r.joined);
    return rc;
}
