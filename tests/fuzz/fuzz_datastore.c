/* ctest: libs=lookup */
/* Files of texts with their suffixes. A file that is opened is asked for guesses, with its own
 * bytes as the text before them; they must be tokens of the vocabulary with counts that make
 * sense. The file is in the current folder, which tests/fuzz/run removes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/file.h"
#include "lookup/datastore.h"

enum { TEXT_MOST = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void ask(const struct datastore *d, const int32_t *text, int n)
{
    struct store_guesses found;
    datastore_find(d, text, n, 1, DRAFT_MAX, &found);
    demand(found.n >= 0 && found.n <= DRAFT_MAX && found.match <= n);
    for (int i = 0; i < found.n; i++) {
        const struct store_guess *guess = &found.guesses[i];
        demand(guess->token >= 0 && guess->token < datastore_tokenizer(d).n_vocab);
        demand(guess->count >= 1 && guess->count <= guess->total);
    }
}

/* Counts make a distribution: no token is listed twice. */
static void walk(const struct datastore *d, const int32_t *text, int n)
{
    struct datastore_walk at;
    struct store_next next;
    if (!datastore_walk_begin(d, text, n, 1, &at)) return;
    do {
        datastore_walk_next(&at, STORE_NEXT_MAX, &next);
        demand(next.n >= 0 && next.n <= STORE_NEXT_MAX);
        for (int i = 0; i < next.n; i++) {
            demand(next.counts[i] >= 1);
            for (int k = 0; k < i; k++) {
                demand(next.tokens[k] != next.tokens[i]);
            }
        }
    } while (next.n > 0 && datastore_walk_step(&at, next.tokens[next.n - 1]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[] = "fuzz_datastore_XXXXXX";
    static int file = -1;
    struct datastore *d;
    struct error err;
    int32_t text[TEXT_MOST];
    if (file < 0) demand((file = mkstemp(path)) >= 0);
    demand(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    if (datastore_open(&d, path, &err)) return 0;
    size_t bytes = size - 64 < sizeof text ? size - 64 : sizeof text; /* after the header */
    memcpy(text, data + 64, bytes);
    for (int n = 1; n <= (int)(bytes / sizeof *text); n++) {
        ask(d, text, n);
        walk(d, text, n);
    }
    (void)datastore_check(d, &err);
    datastore_close(d);
    return 0;
}
