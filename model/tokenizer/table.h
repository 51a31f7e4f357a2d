/* The token table of a tokenizer: id to content, piece and flags, and content to id. */
#pragma once

#include "model/tokenizer/utf8.h"

enum token_flags {
    TOKEN_PRESENT = 1,
    TOKEN_SPECIAL = 2,
    TOKEN_MODEL = 4, /* in the model's vocabulary, not only among the added tokens */
    TOKEN_BYTE = 8   /* "<0x0A>" where the decoder makes bytes of such tokens */
};

struct token_span {
    uint32_t at, len;
};

/* Immutable once filled. content is the token as the file writes it, piece as it is in running
 * text. */
struct token_table {
    int n_ids;
    size_t max_content;
    struct token_span *content, *piece;
    uint8_t *flags;
    struct text_buf bytes;
    int32_t *slots; /* open addressing over content; -1 is empty */
    size_t mask;
};

int token_table_init(struct token_table *table, int n_ids, struct error *err);
void token_table_free(struct token_table *table);
/* Errors: ERR_FORMAT the id is taken, or the content has another id. */
int token_table_add(struct token_table *table, int32_t id, struct text content, unsigned flags,
                    const char *origin, struct error *err);
int token_table_set_piece(struct token_table *table, int32_t id, const char *data, size_t len,
                          struct error *err);
/* The id of a content whose flags include `flags`, or -1. */
int32_t token_table_find(const struct token_table *table, const char *data, size_t len,
                         unsigned flags);
struct text token_table_content(const struct token_table *table, int32_t id);
struct text token_table_piece(const struct token_table *table, int32_t id);
uint64_t token_table_fingerprint(const struct token_table *table);

/* GPT-2's alphabet: every byte has a printable character. Writes 1 or 2 bytes, returns how many. */
size_t byte_level_char(uint8_t byte, char out[2]);
/* Decodes a string of that alphabet to its bytes; false when a character is none of it. out holds
 * content.len bytes. */
bool byte_level_decode(struct text content, char *out, size_t *out_len);
/* 0..255 for "<0x00>".."<0xFF>", else -1. */
int byte_token_value(struct text content);
