/* ctest: libs=tokenizer */
/* Prints the ids of texts, one line for each.
 *
 *     prog_tokenize MODEL              reads texts from the standard input, one line for each, as
 *                                      hexadecimal bytes
 *     prog_tokenize MODEL literal      texts of special tokens are plain text
 *     prog_tokenize MODEL fingerprint  prints that of the token table before */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tokenizer.h"

static size_t from_hex(char *line)
{
    size_t n = 0;
    unsigned byte;
    for (const char *at = line; sscanf(at, "%2x", &byte) == 1; at += 2) {
        line[n++] = (char)byte;
    }
    return n;
}

static int print_ids(const struct tokenizer *tok, const char *text, size_t len, unsigned flags,
                     struct error *err)
{
    struct token_ids ids = {0};
    int rc = tokenizer_encode(tok, text, len, flags, &ids, err);
    for (size_t i = 0; i < ids.n; i++) {
        printf("%s%" PRId32, i ? " " : "", ids.data[i]);
    }
    printf("\n");
    token_ids_free(&ids);
    return rc;
}

int main(int argc, char **argv)
{
    struct tokenizer *tok = NULL;
    struct error err;
    char *line = NULL;
    size_t size = 0;
    if (argc < 2) return 2;
    const char *wish = argc > 2 ? argv[2] : "";
    unsigned flags = strcmp(wish, "literal") == 0 ? 0 : TOKENIZER_PARSE_SPECIAL;
    int rc = tokenizer_open(&tok, argv[1], &err);
    if (!rc && strcmp(wish, "fingerprint") == 0) {
        printf("%016" PRIx64 "\n", tokenizer_fingerprint(tok));
    }
    while (!rc && getline(&line, &size, stdin) >= 0) {
        size_t len = from_hex(line);
        rc = print_ids(tok, line, len, flags, &err);
    }
    if (rc) fprintf(stderr, "%s\n", err.text);
    free(line);
    tokenizer_close(tok);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
