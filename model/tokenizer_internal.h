/* What the files of the tokenizer share. The way of a text:
 *
 *   text --runs of valid UTF-8--> added tokens cut out           tokenizer_encode.c, tokenizer_added.c
 *                                   |
 *                                 normalizer                     tokenizer_normalize.c
 *                                   |
 *                                 added tokens cut out once more (those that ask for it)
 *                                   |
 *                                 pre-tokenizer: words           tokenizer_split.c, tokenizer_pattern.c
 *                                   |
 *                                 merges: ids                    tokenizer_bpe.c
 *                                   |
 *                                 template: BOS and the like
 *
 * Bytes that are not UTF-8 go straight to their byte tokens. The way back is tokenizer_decode.c.
 * tokenizer_json.c, tokenizer_parts.c and tokenizer_table.c build all this from the file. */
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8

#include <jansson.h>
#include <pcre2.h>

#include "model/tokenizer.h"

enum {
    TOKENIZER_MAX_IDS = 1 << 22,
    TOKENIZER_MAX_STAGES = 16, /* of a normalizer, of a pre-tokenizer */
    TOKENIZER_MAX_DEPTH = 8,   /* of Sequences in Sequences */
    TOKENIZER_MAX_ADDED_BYTES = 4096,
    TOKENIZER_MAX_GROWTH = 32 /* a normalizer may make a text so many times longer */
};
static const size_t tokenizer_max_text_bytes = (size_t)1 << 28;

/* ---- text: tokenizer_text.c ---- */

struct text {
    const char *data;
    size_t len;
};

/* A growing buffer; zero it before first use, free with text_buf_free. */
struct text_buf {
    char *data;
    size_t len, capacity;
};

int text_buf_append(struct text_buf *buf, const char *data, size_t len, struct error *err);
void text_buf_free(struct text_buf *buf);

/* One character at the start of data[len >= 1]: 1 whole, 0 the text ends within it, -1 not UTF-8.
 * *used: its bytes; when it is not whole, the bytes that one U+FFFD stands for (Unicode 3.9, U+FFFD
 * substitution of maximal subparts; what Rust's from_utf8_lossy does). */
int text_classify(const char *data, size_t len, size_t *used);
/* Length of the longest prefix that is UTF-8. */
size_t text_valid_length(const char *data, size_t len);
/* The character at the start of valid text; *used: its bytes. */
int32_t text_char(const char *data, size_t *used);
/* Bytes of the character that begins with this byte of valid text. */
size_t text_char_length(char lead);
/* The character before data[end]; end > 0. */
int32_t text_char_before(const char *data, size_t end, size_t *used);
/* len cut to at most `most` bytes at the end of a character, for messages. */
int text_shown_length(const char *data, size_t len, int most);
bool text_is_space(int32_t c); /* White_Space */
bool text_is_word(int32_t c);  /* \w of Unicode TR18 */

/* ---- the token table: tokenizer_table.c ---- */

enum token_flags {
    TOKEN_PRESENT = 1,
    TOKEN_SPECIAL = 2,
    TOKEN_MODEL = 4, /* in the model's vocabulary, not only among the added tokens */
    TOKEN_BYTE = 8   /* "<0x0A>" where the decoder makes bytes of such tokens */
};

struct token_span {
    uint32_t at, len;
};

/* Immutable once filled. content is the token as the file writes it, piece as it stands in text. */
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
/* The bytes behind a string of that alphabet; false when a character is none of it. out holds
 * content.len bytes. */
bool byte_level_decode(struct text content, char *out, size_t *out_len);
/* 0..255 for "<0x00>".."<0xFF>", else -1. */
int byte_token_value(struct text content);

/* ---- merges: tokenizer_bpe.c ---- */

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
};

void bpe_scratch_free(struct bpe_scratch *scratch);
/* Appends the ids of one word. Errors: ERR_NO_MEMORY, ERR_FORMAT a byte has no token. */
int bpe_encode_word(const struct bpe *bpe, const struct token_table *table, struct text word,
                    struct bpe_scratch *scratch, struct token_ids *ids, struct error *err);
/* The id of one byte that is not UTF-8, or the unknown token's; -1 when there is neither. */
int32_t bpe_byte(const struct bpe *bpe, uint8_t byte);

/* ---- patterns: tokenizer_pattern.c ---- */

struct pattern {
    pcre2_code *code;
};

/* literal: the text itself is searched. Errors: ERR_UNSUPPORTED names the pattern and why. */
int pattern_compile(struct pattern *pattern, struct text text, bool literal, const char *origin,
                    struct error *err);
void pattern_free(struct pattern *pattern);

/* What matching needs besides the pattern. Owned by one thread; zeroed is valid to close. */
struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

int matcher_open(struct matcher *matcher, struct error *err);
void matcher_close(struct matcher *matcher);

/* A walk over all matches; fill pattern, matcher and text. */
struct pattern_scan {
    const struct pattern *pattern;
    const struct matcher *matcher;
    struct text text;
    size_t at, last_end;
    bool any;
};

/* Returns 1 and the next match, 0 at the end, or an error: ERR_FORMAT when matching needs too many
 * steps. */
int pattern_next(struct pattern_scan *scan, size_t *begin, size_t *end, struct error *err);

/* ---- normalizer: tokenizer_normalize.c ---- */

enum normalizer_kind { NORMALIZER_UNICODE, NORMALIZER_PREPEND, NORMALIZER_REPLACE };

struct normalizer {
    enum normalizer_kind kind;
    int unicode_options; /* utf8proc's */
    struct pattern pattern;
    char *content; /* owned */
    size_t content_len;
};

/* Working memory of normalizing; zero it before first use. Owned by one thread. */
struct normalizer_scratch {
    struct text_buf bufs[2];
    int32_t *chars, *sorted;
    size_t capacity;
};

void normalizer_scratch_free(struct normalizer_scratch *scratch);
/* Runs all stages over text. *out lies in text or in scratch. continues: the text follows bytes that
 * are not UTF-8, so nothing is put before it. */
int normalizer_run(const struct normalizer *stages, int n_stages, const struct matcher *matcher,
                   struct text text, bool continues, struct normalizer_scratch *scratch,
                   struct text *out, struct error *err);

/* ---- pre-tokenizer: tokenizer_split.c ---- */

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

/* Hands every word of text to fn. bufs: TOKENIZER_MAX_STAGES working buffers. */
int splitter_run(const struct splitter *stages, int n_stages, const struct matcher *matcher,
                 struct text text, unsigned piece, struct text_buf *bufs, word_fn *fn, void *arg,
                 struct error *err);

/* ---- added tokens: tokenizer_added.c ---- */

struct added_token {
    char *text; /* owned; what is searched: the content, or what the normalizer makes of it */
    size_t len;
    int32_t id;
    bool special, lstrip, rstrip, single_word;
};

/* Sorted by text, so that a walk along the bytes narrows a range. */
struct added_set {
    struct added_token *tokens;
    int n;
    int first[257]; /* tokens that begin with byte b are first[b] .. first[b + 1] */
};

/* Errors: ERR_FORMAT two tokens with one text. */
int added_set_sort(struct added_set *set, const char *origin, struct error *err);
void added_set_free(struct added_set *set);

/* The next added token at or behind *at, leftmost, then longest; NULL at the end. [*begin, *end) is
 * what it covers with its blanks; *at moves behind the bare match. special: match special tokens. */
const struct added_token *added_set_next(const struct added_set *set, struct text text,
                                         bool special, size_t covered, size_t *at, size_t *begin,
                                         size_t *end);

/* ---- decoder: tokenizer_decode.c ---- */

struct decoder {
    bool byte_level;    /* pieces are bytes that join before they are read */
    bool byte_fallback; /* runs of byte tokens are read together */
    bool fused;         /* what follows sees one string */
    bool space_between; /* no decoder: tokens joined by blanks */
    char metaspace[8];  /* character that means a blank, "" for none */
    bool drop_first;    /* ... and that vanishes from the first token */
    struct normalizer replaces[TOKENIZER_MAX_STAGES]; /* make pieces of contents */
    int n_replaces;
    char strip[8]; /* character that is stripped, "" for none */
    int strip_start, strip_stop;
};

/* Fills piece and TOKEN_BYTE of a token that the decoder gets as `content`. */
int decoder_make_piece(const struct decoder *decoder, const struct matcher *matcher,
                       struct token_table *table, int32_t id, struct text content,
                       struct normalizer_scratch *scratch, struct error *err);

/* ---- the whole ---- */

struct tokenizer {
    struct token_table table;
    struct bpe bpe;
    struct normalizer normalizers[TOKENIZER_MAX_STAGES];
    int n_normalizers;
    struct splitter splitters[TOKENIZER_MAX_STAGES];
    int n_splitters;
    struct added_set raw, normalized; /* searched before and after the normalizer */
    struct decoder decoder;
    struct token_ids prefix, suffix; /* of the post-processor's template */
};

/* ---- the file: tokenizer_json.c (vocabulary, merges, added tokens), tokenizer_parts.c (components
 * that work on text), tokenizer_ends.c (decoder and template) ---- */

/* config: tokenizer_config.json, or NULL; it may name more added tokens. */
int tokenizer_read(struct tokenizer *tok, const json_t *root, const json_t *config,
                   const char *origin, struct error *err);

int parts_read_normalizer(struct tokenizer *tok, const json_t *node, int depth, const char *origin,
                          struct error *err);
int parts_read_splitter(struct tokenizer *tok, const json_t *node, int depth, const char *origin,
                        struct error *err);
/* node may be NULL: tokens are then joined by blanks, as Hugging Face does. */
int parts_read_decoder(struct tokenizer *tok, const json_t *node, const char *origin,
                       struct error *err);
/* Needs the token table. */
int parts_read_template(struct tokenizer *tok, const json_t *node, int depth, const char *origin,
                        struct error *err);

/* Helpers of the two. parts_type reads the member "type" of a component; `role` names it in errors. */
int parts_type(const json_t *node, const char *role, const char **type, const char *origin,
               struct error *err);
int parts_refuse(const char *role, const char *type, const char *origin, struct error *err);
int parts_need_char(const json_t *node, const char *key, char out[8], const char *origin,
                    struct error *err);
int parts_need_list(const json_t *node, const char *key, int depth, const json_t **list,
                    const char *origin, struct error *err);
int parts_read_replace(struct normalizer *stage, const json_t *node, const char *origin,
                       struct error *err);
int parts_read_metaspace(struct splitter *stage, const json_t *node, const char *origin,
                         struct error *err);
