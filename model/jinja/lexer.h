/* The tokens of a template. Text between tags comes out as it is printed: with trim_blocks and
 * lstrip_blocks, and without what "-" in a tag takes away. */
#pragma once

#include "model/jinja/value.h"

enum token_kind {
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN, /* {{ */
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* without escapes */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, /* text: "==", "(", ... */
    TOKEN_END
};

struct token {
    enum token_kind kind;
    int line;
    struct string text;
    union {
        int64_t integer;
        double number;
    };
};

/* The tokens of source[len], which ends with TOKEN_END, in the heap. Line breaks of all kinds are
 * one "\n", and one at the end of the source is left out.
 * Errors: ERR_FORMAT, ERR_UNSUPPORTED, those of the heap. */
int lexer_run(struct heap *heap, const char *source, size_t len, struct token **tokens,
              struct error *err);
