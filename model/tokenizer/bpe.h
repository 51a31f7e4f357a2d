/* Byte pair encoding: the merges of a tokenizer and how one word is merged. */
#pragma once

#include "model/tokenizer/ids.h"
#include "model/tokenizer/table.h"

struct pair_slot {
    uint64_t key; /* left id, right id; all ones is empty */
    uint32_t rank;
    int32_t id;
};

struct pair_map {
    struct pair_slot *slots;
    size_t mask;
};

int pair_map_init(struct pair_map *map, size_t n_pairs, struct error *err);
/* A pair that comes again takes the later rank, as in Hugging Face's table. */
void pair_map_put(struct pair_map *map, int32_t left, int32_t right, uint32_t rank, int32_t id);

struct bpe {
    struct pair_map pairs;
    int32_t byte_id[256]; /* the token of a byte, or -1 */
    int32_t unk_id;       /* or -1 */
    bool byte_level;      /* words are bytes, not characters */
    bool byte_fallback, fuse_unk, ignore_merges;
    bool cut_before_space; /* no merge joins x and U+2581: a word may be cut there, exactly */
};

/* Working memory of merging; zero it before first use. Owned by one thread. */
struct bpe_scratch {
    int32_t *ids, *next, *prev;
    size_t capacity;
    uint64_t *heap;
    size_t n_heap, heap_capacity;
    struct text_buf word;
    char lacking[4];  /* the character, or the byte of one, that has no token */
    size_t n_lacking; /* 0 = all have one */
};

void bpe_scratch_free(struct bpe_scratch *scratch);
/* Appends the ids of one word. Errors: ERR_NO_MEMORY; ERR_ARGUMENT a byte has no
 * token, with scratch->lacking. */
int bpe_encode_word(const struct bpe *bpe, const struct token_table *table, struct text word,
                    struct bpe_scratch *scratch, struct token_ids *ids, struct error *err);
/* The id of one byte that is not UTF-8, or the unknown token's; -1 when there is neither. */
int32_t bpe_byte(const struct bpe *bpe, uint8_t byte);
/* Notes what has no token, at most 4 bytes. Returns ERR_ARGUMENT. */
int bpe_no_token(struct bpe_scratch *scratch, const char *data, size_t len, struct error *err);
