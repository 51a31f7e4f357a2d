/* Token counts and their list. */
#include "model/tokenizer/token_counts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"

#define HEADER "# outrider token counts, tokenizer "

enum {
    FINGERPRINT_DIGITS = 16,
    LINE_BYTES = 48, /* two numbers, a blank, a newline */
    FILE_BYTES_MAX = 64 << 20
};

struct counted {
    uint64_t count;
    int32_t id;
};

int token_counts_init(struct token_counts *counts, const struct tokenizer *tok, struct error *err)
{
    *counts = (struct token_counts){.fingerprint = tokenizer_fingerprint(tok),
                                    .n_vocab = tokenizer_vocab_size(tok)};
    return mem_array(&counts->counts, (size_t)counts->n_vocab, sizeof *counts->counts, err);
}

void token_counts_free(struct token_counts *counts)
{
    free(counts->counts);
    *counts = (struct token_counts){0};
}

void token_counts_add(struct token_counts *counts, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= counts->n_vocab) continue;
        if (counts->counts[ids[i]] < UINT64_MAX) counts->counts[ids[i]]++;
    }
}

int token_counts_seen(const struct token_counts *counts)
{
    int n = 0;
    for (int id = 0; id < counts->n_vocab; id++) {
        n += counts->counts[id] > 0;
    }
    return n;
}

/* ---- reading ---- */

struct reader {
    struct token_counts *counts;
    const char *at, *end, *origin;
    int line;
    uint64_t last_count; /* of the line before */
    struct error *err;
};

/* Digits up to something else; false: none, or more than 64 bits hold. */
static bool read_number(struct reader *r, uint64_t *out)
{
    const char *begin = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        uint64_t digit = (uint64_t)(*r->at - '0');
        if (*out > (UINT64_MAX - digit) / 10) return false;
        *out = *out * 10 + digit;
    }
    return r->at > begin;
}

static bool read_char(struct reader *r, char wanted)
{
    if (r->at == r->end || *r->at != wanted) return false;
    r->at++;
    return true;
}

static int read_header(struct reader *r)
{
    const size_t len = sizeof HEADER - 1;
    char digits[FINGERPRINT_DIGITS + 1] = "", *rest = digits;
    uint64_t fingerprint = 0;
    bool is_header = (size_t)(r->end - r->at) > len + FINGERPRINT_DIGITS &&
                     memcmp(r->at, HEADER, len) == 0 && r->at[len + FINGERPRINT_DIGITS] == '\n';
    if (is_header) {
        memcpy(digits, r->at + len, FINGERPRINT_DIGITS);
        is_header = strspn(digits, "0123456789abcdef") == FINGERPRINT_DIGITS;
        fingerprint = strtoull(digits, &rest, 16);
    }
    if (!is_header) {
        return error_set(r->err, ERR_FORMAT,
                         "%s is no list of token counts: its first line must be '" HEADER
                         "FINGERPRINT'; 'outrider count' writes such lists",
                         r->origin);
    }
    r->at += len + FINGERPRINT_DIGITS + 1;
    if (fingerprint == r->counts->fingerprint) return 0;
    return error_set(r->err, ERR_ARGUMENT,
                     "%s counts the tokens of another tokenizer (%s, and %016" PRIx64
                     " is in use): count a text with this one by 'outrider count'",
                     r->origin, digits, r->counts->fingerprint);
}

static int check_line(const struct reader *r, uint64_t id, uint64_t count)
{
    const char *what = NULL;
    if (id >= (uint64_t)r->counts->n_vocab) {
        return error_set(r->err, ERR_FORMAT,
                         "%s, line %d: token id %" PRIu64 " is outside of the vocabulary of %d",
                         r->origin, r->line, id, r->counts->n_vocab);
    }
    if (r->counts->counts[id]) {
        what = "was counted in a line before";
    } else if (count == 0) {
        what = "was seen 0 times: such tokens are left out";
    } else if (count > r->last_count) {
        what = "was seen more often than that of the line before: the most frequent come first";
    }
    if (!what) return 0;
    return error_set(r->err, ERR_FORMAT, "%s, line %d: token id %" PRIu64 " %s", r->origin, r->line,
                     id, what);
}

static int read_line(struct reader *r)
{
    uint64_t id, count;
    bool is_line =
        read_number(r, &id) && read_char(r, ' ') && read_number(r, &count) && read_char(r, '\n');
    r->line++;
    if (!is_line) {
        return error_set(r->err, ERR_FORMAT,
                         "%s, line %d: expected a token id, a blank and how often it was seen",
                         r->origin, r->line);
    }
    int rc = check_line(r, id, count);
    if (rc) return rc;
    r->counts->counts[id] = r->last_count = count;
    return 0;
}

int token_counts_parse(struct token_counts *counts, const char *text, size_t len,
                       const char *origin, struct error *err)
{
    struct reader r = {.counts = counts,
                       .at = text,
                       .end = text + len,
                       .origin = origin,
                       .line = 1,
                       .last_count = UINT64_MAX,
                       .err = err};
    int rc = read_header(&r);
    while (!rc && r.at < r.end) {
        rc = read_line(&r);
    }
    return rc;
}

int token_counts_read(struct token_counts *counts, const char *path, struct error *err)
{
    char *text = NULL;
    size_t len;
    int rc = 0;
    TRY(file_read_text(&text, &len, path, FILE_BYTES_MAX, err));
    TRY(token_counts_parse(counts, text, len, path, err));
out:
    free(text);
    return rc;
}

/* ---- the most frequent ---- */

static int by_count(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The tokens that were seen, the most frequent first; the caller frees *list. */
static int rank(const struct token_counts *counts, struct counted **list, int *n, struct error *err)
{
    *n = 0;
    int rc = mem_array(list, (size_t)token_counts_seen(counts), sizeof **list, err);
    for (int id = 0; !rc && id < counts->n_vocab; id++) {
        if (counts->counts[id]) (*list)[(*n)++] = (struct counted){counts->counts[id], id};
    }
    if (!rc) qsort(*list, (size_t)*n, sizeof **list, by_count);
    return rc;
}

int token_counts_best(const struct token_counts *counts, int n, const struct end_ids *always,
                      int n_vocab, int32_t **ids, int *n_ids, struct error *err)
{
    struct counted *list = NULL;
    int rc = 0, n_seen, n_all = 0, n_kept = 0;
    *ids = NULL;
    *n_ids = 0;
    TRY(rank(counts, &list, &n_seen, err));
    if (n > n_seen) n = n_seen;
    TRY(mem_array(ids, (size_t)n + (size_t)always->n, sizeof **ids, err));
    int32_t *all = *ids;
    for (int i = 0; i < n + always->n; i++) {
        int32_t id = i < n ? list[i].id : always->ids[i - n];
        if (id >= 0 && id < n_vocab) all[n_all++] = id;
    }
    qsort(all, (size_t)n_all, sizeof *all, by_id);
    for (int i = 0; i < n_all; i++) {
        if (n_kept == 0 || all[i] != all[n_kept - 1]) all[n_kept++] = all[i];
    }
    *n_ids = n_kept;
out:
    free(list);
    return rc;
}

/* ---- writing ---- */

int token_counts_text(const struct token_counts *counts, char **text, size_t *len,
                      struct error *err)
{
    struct counted *list = NULL;
    int rc = 0, n;
    *text = NULL;
    *len = 0;
    TRY(rank(counts, &list, &n, err));
    size_t capacity = sizeof HEADER + FINGERPRINT_DIGITS + 1 + (size_t)n * LINE_BYTES;
    TRY(mem_array(text, capacity, 1, err));
    *len = (size_t)snprintf(*text, capacity, HEADER "%016" PRIx64 "\n", counts->fingerprint);
    for (int i = 0; i < n; i++) {
        *len += (size_t)snprintf(*text + *len, capacity - *len, "%d %" PRIu64 "\n", (int)list[i].id,
                                 list[i].count);
    }
out:
    free(list);
    return rc;
}

int token_counts_write(const struct token_counts *counts, const char *path, struct error *err)
{
    char *text = NULL;
    size_t len;
    int rc = 0;
    TRY(token_counts_text(counts, &text, &len, err));
    TRY(file_replace(path, text, len, err));
out:
    free(text);
    return rc;
}
