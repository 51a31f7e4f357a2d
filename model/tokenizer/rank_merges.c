/* The merges of SentencePiece, which has none: it joins two neighbours if they are a token
 * together, the token of the highest score first. As transformers' generate_merges: every way of
 * cutting a token into two tokens is a merge, ranked by the token's score; of merges of one score,
 * the one whose left part has the most characters is first, then the token of the lowest id.
 * Only normal tokens are parts and results, because texts of the others are no words. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/tokenizer/internal.h"

struct ranking {
    const struct token_table *table;
    const struct gguf_vocabulary *lists;
    int32_t *order; /* [n_order] normal tokens, the first one to be made first */
    size_t n_order;
    double *scores; /* [lists->n]; NULL: ids rank */
    struct ranked_merge *merges;
    size_t n, capacity;
};

static bool is_normal(const struct ranking *r, int32_t id)
{
    return id >= 0 && r->lists->types[id] == GGUF_TOKEN_NORMAL;
}

struct scored_id {
    double score;
    int32_t id;
};

static int compare_scores(const void *a, const void *b)
{
    const struct scored_id *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int sort_tokens(struct ranking *r, struct error *err)
{
    const int n = r->lists->n;
    struct scored_id *ids = NULL;
    bool is_sorted = true;
    int rc = 0;
    TRY(mem_array(&ids, (size_t)n, sizeof *ids, err));
    TRY(mem_array(&r->order, (size_t)n, sizeof *r->order, err));
    if (r->lists->ranking == GGUF_RANK_SCORES) {
        TRY(mem_array(&r->scores, (size_t)n, sizeof *r->scores, err));
    }
    for (int32_t id = 0; id < n; id++) {
        if (r->scores) r->scores[id] = gguf_array_number(&r->lists->scores, (uint64_t)id);
        if (!is_normal(r, id) || !r->lists->tokens[id].len) continue;
        ids[r->n_order] = (struct scored_id){r->scores ? r->scores[id] : -(double)id, id};
        is_sorted =
            is_sorted && (!r->n_order || ids[r->n_order - 1].score >= ids[r->n_order].score);
        r->n_order++;
    }
    if (!is_sorted) qsort(ids, r->n_order, sizeof *ids, compare_scores);
    for (size_t i = 0; i < r->n_order; i++)
        r->order[i] = ids[i].id;
out:
    free(ids);
    return rc;
}

/* Appends the merges that make one token, that of the longest left part first. */
static int cut_token(struct ranking *r, int32_t id, struct error *err)
{
    const struct text text = token_table_content(r->table, id);
    int rc = mem_grow(&r->merges, &r->capacity, r->n + text.len, err);
    if (rc) return rc;
    for (size_t at = text.len - 1; at > 0; at--) {
        if (((uint8_t)text.data[at] & 0xc0) == 0x80) continue; /* within a character */
        int32_t left = token_table_find(r->table, text.data, at, TOKEN_MODEL);
        if (!is_normal(r, left)) continue;
        int32_t right = token_table_find(r->table, text.data + at, text.len - at, TOKEN_MODEL);
        if (is_normal(r, right)) r->merges[r->n++] = (struct ranked_merge){left, right, id};
    }
    return 0;
}

static size_t n_chars(struct text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((uint8_t)text.data[i] & 0xc0) != 0x80;
    return n;
}

/* A merge of a group of one score. */
struct tied_merge {
    struct ranked_merge merge;
    size_t n_left, n_right, place;
};

static int compare_tied(const void *a, const void *b)
{
    const struct tied_merge *x = a, *y = b;
    if (x->n_left != y->n_left) return x->n_left > y->n_left ? -1 : 1;
    if (x->n_right != y->n_right) return x->n_right > y->n_right ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Orders the merges from `begin` on, which are of tokens of one score. */
static int sort_tied(struct ranking *r, size_t begin, struct error *err)
{
    const size_t n = r->n - begin;
    struct tied_merge *tied = NULL;
    int rc = mem_array(&tied, n, sizeof *tied, err);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        const struct ranked_merge merge = r->merges[begin + i];
        tied[i] =
            (struct tied_merge){.merge = merge,
                                .n_left = n_chars(token_table_content(r->table, merge.left)),
                                .n_right = n_chars(token_table_content(r->table, merge.right)),
                                .place = i};
    }
    qsort(tied, n, sizeof *tied, compare_tied);
    for (size_t i = 0; i < n; i++)
        r->merges[begin + i] = tied[i].merge;
    free(tied);
    return 0;
}

static bool same_score(const struct ranking *r, size_t i)
{
    return r->scores && r->scores[r->order[i]] == r->scores[r->order[i - 1]];
}

static int cut_tokens(struct ranking *r, struct error *err)
{
    size_t begin = 0;
    bool is_tied = false;
    int rc = 0;
    for (size_t i = 0; i < r->n_order; i++) {
        const bool same = i && same_score(r, i);
        if (!same) {
            if (is_tied) TRY(sort_tied(r, begin, err));
            begin = r->n;
        }
        is_tied = same;
        TRY(cut_token(r, r->order[i], err));
    }
    if (is_tied) TRY(sort_tied(r, begin, err));
out:
    return rc;
}

int rank_merges(struct ranked_merge **merges, size_t *n, const struct token_table *table,
                const struct gguf_vocabulary *lists, struct error *err)
{
    struct ranking r = {.table = table, .lists = lists};
    int rc = 0;
    TRY(sort_tokens(&r, err));
    TRY(cut_tokens(&r, err));
    *merges = r.merges;
    *n = r.n;
    r.merges = NULL;
out:
    free(r.order);
    free(r.scores);
    free(r.merges);
    return rc;
}
