/* Text to token ids and back, as a Hugging Face tokenizer.json or the metadata of a GGUF file say:
 * byte-level BPE (GPT-2, Llama 3, Qwen 2) and SentencePiece-style BPE with byte fallback (Llama 2,
 * Mistral, Gemma). Immutable after open; encoding and decoding may run in several threads at
 * once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/tokenizer/ids.h"

struct gguf;
struct tokenizer;

/* Reads FOLDER/tokenizer.json, and the tokens that tokenizer_config.json, special_tokens_map.json
 * and added_tokens.json name, where there are such files. name: the folder, a model of the
 * Hugging Face cache (base/system/hub_cache.h), or a GGUF file.
 * Errors: ERR_NOT_FOUND, ERR_FORMAT, ERR_UNSUPPORTED (names the component that is not
 * understood). */
int tokenizer_open(struct tokenizer **tok, const char *name, struct error *err);

/* As tokenizer_open, for a GGUF file that is open; it is not needed after that. */
int tokenizer_open_gguf(struct tokenizer **tok, const struct gguf *gguf, struct error *err);

/* As tokenizer_open, from memory; the fuzz target's entry. config_json may be NULL. */
int tokenizer_parse(struct tokenizer **tok, const char *json, size_t len, const char *config_json,
                    size_t config_len, const char *origin, struct error *err);

/* The tokenizer of synthetic models: ids 0..255 are the bytes, the rest fillers that decode to
 * nothing and are never encoded. n_vocab >= 256. */
int tokenizer_open_bytes(struct tokenizer **tok, int n_vocab, struct error *err);

void tokenizer_close(struct tokenizer *tok);

enum tokenizer_flags {
    TOKENIZER_ADD_SPECIAL = 1, /* apply the post-processor: BOS and the like */
    /* "<|endoftext|>" in the text becomes its token, as in Hugging Face; otherwise it is plain
     * text. */
    TOKENIZER_PARSE_SPECIAL = 2
};

/* Appends the ids of text[len] to *ids. The text is UTF-8; bytes that are not UTF-8 are encoded one
 * by one, as they are (byte-level) or through the byte tokens; the text after them gets no prefix
 * blank. Errors leave *ids as they were: ERR_NO_MEMORY; ERR_ARGUMENT more than 256 MiB, or
 * a byte has no token at all; ERR_FORMAT a pattern of the file takes too many steps. */
int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len, unsigned flags,
                     struct token_ids *ids, struct error *err);

/* As tokenizer_encode, but special tokens that have one of breaks[n_breaks] within them, an
 * ascending list of offsets, are plain text; only for tokenizers of which guard_is_possible
 * (model/tokenizer/guard.h) is true. */
int tokenizer_encode_broken(const struct tokenizer *tok, const char *text, size_t len,
                            unsigned flags, const size_t *breaks, size_t n_breaks,
                            struct token_ids *ids, struct error *err);

/* Counts the tokens that TOKENIZER_ADD_SPECIAL puts before a text and after it. */
void tokenizer_count_added(const struct tokenizer *tok, size_t *n_before, size_t *n_after);

/* A sentence about an oddity of the file that is no error; NULL: there is none. */
const char *tokenizer_remark(const struct tokenizer *tok);

/* 1 + the highest id that the file names. */
int tokenizer_vocab_size(const struct tokenizer *tok);
/* The token that the file writes like this; -1 = there is none. */
int32_t tokenizer_find(const struct tokenizer *tok, const char *content, size_t len);
bool tokenizer_is_special(const struct tokenizer *tok, int32_t id);

/* A hash over every (id, bytes, special) triple: equal for equal token tables. */
uint64_t tokenizer_fingerprint(const struct tokenizer *tok);

/* The bytes of a token as they are in running text (special tokens: their content). An id out of
 * range gives length 0. No NUL follows the bytes. The pointer is valid as long as tok. */
const char *tokenizer_piece(const struct tokenizer *tok, int32_t id, size_t *len);

/* The token as its file writes it, such as "\u0120the"; otherwise as tokenizer_piece. */
const char *tokenizer_content(const struct tokenizer *tok, int32_t id, size_t *len);

/* Streaming detokenization: feeds ids, hands out text that ends on whole UTF-8 characters. Bytes
 * that cannot become a character come out as U+FFFD, as Hugging Face prints them. Whole sequences
 * decoded at once give the same text. Owned by one thread. */
struct detokenizer;

/* keeps tok. skip_special leaves out special tokens. */
int detokenizer_open(struct detokenizer **detok, const struct tokenizer *tok, bool skip_special,
                     struct error *err);
void detokenizer_close(struct detokenizer *detok);

/* Sets *text to what became complete (it may be empty; NUL-terminated, *len bytes); it is valid
 * until the next call. */
int detokenizer_push(struct detokenizer *detok, int32_t id, const char **text, size_t *len,
                     struct error *err);
/* Returns the rest at the end: an incomplete character becomes U+FFFD. The detokenizer is as new
 * then. */
int detokenizer_finish(struct detokenizer *detok, const char **text, size_t *len,
                       struct error *err);

/* The text of one token alone, for people: out[size] ends in NUL; bytes that are no character alone
 * show as U+FFFD, and a text that does not fit is left out. Errors: ERR_NO_MEMORY; out holds a text
 * then too. */
int tokenizer_token_text(const struct tokenizer *tok, int32_t id, char *out, size_t size,
                         struct error *err);
