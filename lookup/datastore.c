/* The file: a header, the tokens, and their positions in the order of the suffixes that begin
 * there. Numbers are those of a little-endian machine. */
#include "lookup/datastore.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/system/file_guard.h"
#include "base/system/file_write.h"

enum { VERSION = 1, SAMPLES = 16, PATH_BYTES = 300 };

static const char magic[8] = "outrLook";

struct header {
    char magic[8];
    uint32_t version, n_vocab;
    uint64_t fingerprint, n_tokens, checksum; /* of tokens and suffixes */
    uint64_t reserved[3];                     /* 0 */
};

struct datastore {
    struct file_view view;
    char path[PATH_BYTES];
    struct header header; /* a copy: the file may change */
    atomic_bool
        is_lost; /* set by the thread that meets the end of the file (base/system/file_guard.h) */
    const int32_t *tokens, *suffixes; /* [n] */
    size_t n;
};

/* ---- writing ---- */

/* Suffixes in order by DATASTORE_DEPTH tokens, equal ones by position; a text's end ends them. */
static bool is_before(const int32_t *tokens, size_t n, int32_t a, int32_t b)
{
    for (size_t i = 0; i < DATASTORE_DEPTH; i++) {
        int32_t x = (size_t)a + i < n ? tokens[(size_t)a + i] : DATASTORE_END;
        int32_t y = (size_t)b + i < n ? tokens[(size_t)b + i] : DATASTORE_END;
        if (x != y) return x < y;
        if (x == DATASTORE_END) break;
    }
    return a < b;
}

static void merge(const int32_t *tokens, size_t n, const int32_t *from, size_t begin, size_t middle,
                  size_t end, int32_t *to)
{
    size_t a = begin, b = middle;
    for (size_t i = begin; i < end; i++) {
        bool takes_b = a == middle || (b < end && is_before(tokens, n, from[b], from[a]));
        to[i] = takes_b ? from[b++] : from[a++];
    }
}

/* Merge sort, whose time is bounded for any text; returns the one of both arrays that has the
 * result. */
static int32_t *sort(const int32_t *tokens, size_t n, int32_t *one, int32_t *other)
{
    for (size_t i = 0; i < n; i++) {
        one[i] = (int32_t)i;
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t middle = begin + width < n ? begin + width : n;
            size_t end = begin + 2 * width < n ? begin + 2 * width : n;
            merge(tokens, n, one, begin, middle, end, other);
        }
        int32_t *swapped = one;
        one = other;
        other = swapped;
    }
    return one;
}

static uint64_t checksum_of(const int32_t *tokens, const int32_t *suffixes, size_t n)
{
    return XXH3_64bits_withSeed(suffixes, n * sizeof *suffixes,
                                XXH3_64bits(tokens, n * sizeof *tokens));
}

static int check_tokens(const char *path, const int32_t *tokens, size_t n, int n_vocab,
                        struct error *err)
{
    if (n == 0 || n > DATASTORE_TOKENS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: %zu tokens; a datastore has 1 to %d", path, n,
                         DATASTORE_TOKENS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] >= DATASTORE_END && tokens[i] < n_vocab) continue;
        return error_set(err, ERR_ARGUMENT, "%s: token %d is outside of the vocabulary of %d", path,
                         (int)tokens[i], n_vocab);
    }
    return 0;
}

int datastore_write(const char *path, const int32_t *tokens, size_t n,
                    const struct datastore_tokenizer *tokenizer, struct error *err)
{
    int rc = 0;
    int32_t *one = NULL, *other = NULL;
    size_t bytes = n * sizeof *tokens;
    struct header header = {.version = VERSION,
                            .n_vocab = (uint32_t)tokenizer->n_vocab,
                            .fingerprint = tokenizer->fingerprint,
                            .n_tokens = n};
    memcpy(header.magic, magic, sizeof magic);
    TRY(check_tokens(path, tokens, n, tokenizer->n_vocab, err));
    TRY(mem_array(&one, n, sizeof *one, err));
    TRY(mem_array(&other, n, sizeof *other, err));
    const int32_t *suffixes = sort(tokens, n, one, other);
    header.checksum = checksum_of(tokens, suffixes, n);
    const struct file_piece pieces[] = {{&header, sizeof header, 0},
                                        {tokens, bytes, sizeof header},
                                        {suffixes, bytes, sizeof header + bytes}};
    TRY(file_write_whole(path, pieces, 3, sizeof header + 2 * bytes, NULL, err));
out:
    free(one);
    free(other);
    return rc;
}

/* ---- opening ---- */

static int check_header(const struct datastore *d, const char *path, struct error *err)
{
    const struct header *h = &d->header;
    if (memcmp(h->magic, magic, sizeof magic) != 0) {
        return error_set(err, ERR_FORMAT,
                         "%s is no datastore; 'outrider datastore build' makes one", path);
    }
    if (h->version != VERSION) {
        return error_set(err, ERR_FORMAT, "%s is a datastore of version %u, not %d; build it again",
                         path, (unsigned)h->version, VERSION);
    }
    if (h->n_tokens == 0 || h->n_tokens > DATASTORE_TOKENS_MAX || h->n_vocab == 0 ||
        h->n_vocab > INT32_MAX ||
        d->view.size_bytes != sizeof *h + 2 * h->n_tokens * sizeof *d->tokens) {
        return error_set(err, ERR_FORMAT,
                         "%s has %zu bytes, which do not fit its %llu tokens; build it again", path,
                         d->view.size_bytes, (unsigned long long)h->n_tokens);
    }
    return 0;
}

int datastore_open(struct datastore **store, const char *path, struct error *err)
{
    int rc = 0;
    struct datastore *d = NULL;
    *store = NULL;
    TRY(mem_array(&d, 1, sizeof *d, err));
    TRY(file_map(&d->view, path, err));
    file_guard_set_flag(d->view.data, &d->is_lost);
    if (d->view.size_bytes >= sizeof d->header) memcpy(&d->header, d->view.data, sizeof d->header);
    TRY(check_header(d, path, err));
    strncpy(d->path, path, sizeof d->path - 1);
    d->n = (size_t)d->header.n_tokens;
    d->tokens = (const void *)(d->view.data + sizeof d->header);
    d->suffixes = d->tokens + d->n;
    *store = d;
    d = NULL;
out:
    datastore_close(d);
    return rc;
}

void datastore_close(struct datastore *d)
{
    if (!d) return;
    file_unmap(&d->view);
    free(d);
}

struct datastore_tokenizer datastore_tokenizer(const struct datastore *d)
{
    return (struct datastore_tokenizer){d->header.fingerprint, (int)d->header.n_vocab};
}

size_t datastore_length(const struct datastore *d)
{
    return d->n;
}

const char *datastore_path(const struct datastore *d)
{
    return d->path;
}

bool datastore_is_lost(const struct datastore *d)
{
    return atomic_load_explicit(&d->is_lost, memory_order_relaxed);
}

int datastore_check(const struct datastore *d, struct error *err)
{
    uint64_t checksum = checksum_of(d->tokens, d->suffixes, d->n);
    if (datastore_is_lost(d)) {
        return error_set(err, ERR_IO, "%s became shorter while it was read", d->path);
    }
    if (checksum == d->header.checksum) return 0;
    return error_set(err, ERR_FORMAT, "%s is damaged: its checksum differs; build it again",
                     d->path);
}

/* ---- looking ---- */

/* Positions [low, high) of the order. */
struct range {
    size_t low, high;
};

/* Returns the token at position `depth` of a suffix; DATASTORE_END outside of the file. */
static int32_t token_at(const struct datastore *d, size_t rank, int depth)
{
    int32_t position = d->suffixes[rank];
    size_t at = (size_t)position + (size_t)depth;
    return position >= 0 && at < d->n ? d->tokens[at] : DATASTORE_END;
}

/* Compares a suffix with text[n]: -1 if it sorts before text, 0 if text is its prefix, 1 if it
 * sorts after text. */
static int compare(const struct datastore *d, size_t rank, const int32_t *text, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t token = token_at(d, rank, i);
        if (token != text[i]) return token < text[i] ? -1 : 1;
    }
    return 0;
}

/* The first rank whose comparison is more than `least`. */
static size_t first_above(const struct datastore *d, const int32_t *text, int n, int least)
{
    size_t low = 0, high = d->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(d, middle, text, n) > least) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static struct range find_range(const struct datastore *d, const int32_t *text, int n)
{
    return (struct range){first_above(d, text, n, -1), first_above(d, text, n, 0)};
}

static bool has(const struct datastore *d, const int32_t *text, int n)
{
    size_t rank = first_above(d, text, n, -1);
    return rank < d->n && compare(d, rank, text, n) == 0;
}

/* Returns the length of the longest end of text[n] that the file has; if it has one of a length, it
 * has all shorter ones, which the bisection relies on. */
static int longest(const struct datastore *d, const int32_t *text, int n)
{
    int low = 0, high = n < STORE_MATCH_MAX ? n : STORE_MATCH_MAX;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (has(d, text + n - middle, middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* The first rank of [low, high) whose token at `depth` is at least `token`; high: there is none. */
static size_t first_token(const struct datastore *d, size_t low, size_t high, int depth,
                          int64_t token)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (token_at(d, middle, depth) >= token) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

bool datastore_walk_step(struct datastore_walk *walk, int32_t token)
{
    size_t low = first_token(walk->in, walk->low, walk->high, walk->depth, token);
    walk->high = first_token(walk->in, low, walk->high, walk->depth, (int64_t)token + 1);
    walk->low = low;
    walk->depth++;
    return walk->low < walk->high;
}

/* Puts a token where its count belongs, if that is among the first `most`. In a file that lies it
 * may come a second time. */
static void list(struct store_next *next, int most, int32_t token, int32_t count)
{
    for (int i = 0; i < next->n; i++) {
        if (next->tokens[i] == token) return;
    }
    int at = next->n < most ? next->n++ : most;
    for (; at > 0 && next->counts[at - 1] < count; at--) {
        if (at == most) continue;
        next->tokens[at] = next->tokens[at - 1];
        next->counts[at] = next->counts[at - 1];
    }
    if (at == most) return;
    next->tokens[at] = token;
    next->counts[at] = count;
}

/* Groups of ranks with one next token, those that evenly spaced ranks belong to; the end of a text
 * is no token. */
void datastore_walk_next(const struct datastore_walk *walk, int most, struct store_next *next)
{
    const struct datastore *d = walk->in;
    size_t n = walk->high - walk->low, step = n > SAMPLES ? n / SAMPLES : 1, begin = walk->low;
    next->n = 0;
    next->total = (int32_t)n;
    for (size_t rank = walk->low; rank < walk->high && walk->depth < DATASTORE_DEPTH;) {
        int32_t token = token_at(d, rank, walk->depth);
        begin = first_token(d, begin, rank, walk->depth, token);
        size_t end = first_token(d, rank + 1, walk->high, walk->depth, (int64_t)token + 1);
        bool is_token = token >= 0 && (uint32_t)token < d->header.n_vocab;
        if (is_token) list(next, most, token, (int32_t)(end - begin));
        begin = end;
        rank += step * ((end - rank + step - 1) / step);
    }
}

bool datastore_walk_begin(const struct datastore *d, const int32_t *text, int n, int n_match_min,
                          struct datastore_walk *walk)
{
    struct store_next next;
    if (n_match_min < 1) n_match_min = 1;
    if (datastore_is_lost(d)) return false;
    for (int match = longest(d, text, n); match >= n_match_min; match--) {
        struct range in = find_range(d, text + n - match, match);
        if (in.low >= in.high) continue;
        *walk = (struct datastore_walk){d, in.low, in.high, match, match};
        datastore_walk_next(walk, 1, &next);
        if (next.n > 0) return true; /* otherwise texts end there */
    }
    return false;
}

void datastore_find(const struct datastore *d, const int32_t *text, int n, int n_match_min, int k,
                    struct store_guesses *found)
{
    struct datastore_walk walk;
    struct store_next next;
    found->n = found->match = 0;
    if (!datastore_walk_begin(d, text, n, n_match_min, &walk)) return;
    found->match = walk.match;
    for (datastore_walk_next(&walk, 1, &next); found->n < k && next.n > 0;) {
        found->guesses[found->n++] =
            (struct store_guess){next.tokens[0], next.counts[0], next.total};
        if (!datastore_walk_step(&walk, next.tokens[0])) break; /* only in a file that lies */
        datastore_walk_next(&walk, 1, &next);
    }
}
