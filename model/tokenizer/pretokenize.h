/* The pre-tokenizer: stages that cut a text into words. */
#pragma once

#include "model/tokenizer/pattern.h"

enum { SPLITTER_MAX_STAGES = 16 };

enum splitter_kind { SPLITTER_PATTERN, SPLITTER_BYTE_LEVEL, SPLITTER_METASPACE, SPLITTER_DIGITS };
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_CONTIGUOUS,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT
};
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct splitter {
    enum splitter_kind kind;
    enum split_behavior behavior;
    struct pattern pattern; /* no code: nothing is split */
    bool invert;
    bool add_prefix_space;       /* ByteLevel */
    enum prepend_scheme prepend; /* Metaspace */
    char replacement[8];         /* Metaspace; one character */
};

enum piece_flags {
    PIECE_FIRST = 1,    /* begins where the whole text begins */
    PIECE_CONTINUES = 2 /* follows bytes that are not UTF-8 */
};

typedef int word_fn(void *arg, struct text word, struct error *err);

/* The parameters of splitter_run. */
struct split_run {
    const struct splitter *stages;
    int n_stages;
    const struct matcher *matcher;
    struct text_buf *bufs; /* [n_stages] working memory */
    word_fn *take_word;
    void *arg; /* of take_word */
};

/* Hands every word of text to run->take_word. piece: flags of piece_flags. Errors: those of
 * take_word and of pattern_next; ERR_NO_MEMORY. */
int splitter_run(const struct split_run *run, struct text text, unsigned piece, struct error *err);
