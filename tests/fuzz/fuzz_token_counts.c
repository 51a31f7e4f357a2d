/* ctest: libs=tokenizer */
/* Lists of token counts, read with a tokenizer of 300 tokens. What is accepted must come out of a
 * writing and another reading as it was, and makes heads that a model takes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/token_counts.h"

enum { N_VOCAB = 300, N_DRAFT = 290 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void check_head(const struct token_counts *counts, int n)
{
    static const struct end_ids always = {3, {2, 299, -1}};
    struct error err;
    int32_t *ids;
    int n_ids;
    demand(token_counts_best(counts, n, &always, N_DRAFT, &ids, &n_ids, &err) == 0);
    demand(n_ids >= 1 && n_ids <= n + 1);
    for (int i = 0; i < n_ids; i++) {
        demand(ids[i] >= 0 && ids[i] < N_DRAFT && (i == 0 || ids[i] > ids[i - 1]));
    }
    free(ids);
}

static void check_again(const struct token_counts *counts, const struct tokenizer *tok)
{
    struct token_counts again;
    struct error err;
    char *text;
    size_t len;
    demand(token_counts_init(&again, tok, &err) == 0);
    demand(token_counts_text(counts, &text, &len, &err) == 0);
    demand(token_counts_parse(&again, text, len, "again", &err) == 0);
    demand(memcmp(again.counts, counts->counts, N_VOCAB * sizeof *again.counts) == 0);
    token_counts_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tok;
    struct token_counts counts;
    struct error err;
    if (!tok) demand(tokenizer_open_bytes(&tok, N_VOCAB, &err) == 0);
    demand(token_counts_init(&counts, tok, &err) == 0);
    if (token_counts_parse(&counts, (const char *)data, size, "fuzz", &err) == 0) {
        check_head(&counts, token_counts_seen(&counts));
        check_head(&counts, 1);
        check_again(&counts, tok);
    }
    token_counts_free(&counts);
    return 0;
}
