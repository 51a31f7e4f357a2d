/* Writes GGUF files that have a tokenizer and nothing else, for tests:
 * the number of keys is filled in at the end. */
#pragma once

#include "tests/support/gguf_writer.h"

struct file {
    struct gguf_writer w;
    unsigned n_keys;
};

static inline void begin(struct file *f, const char *model, const char *pre)
{
    *f = (struct file){0};
    gguf_put_header(&f->w, 3, 0, 0);
    gguf_put_text_key(&f->w, "tokenizer.ggml.model", model);
    f->n_keys++;
    if (!pre) return;
    gguf_put_text_key(&f->w, "tokenizer.ggml.pre", pre);
    f->n_keys++;
}

static inline void put_texts(struct file *f, const char *key, const char *const *texts, size_t n)
{
    gguf_put_array(&f->w, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        gguf_put_text(&f->w, texts[i]);
    f->n_keys++;
}

static inline void put_types(struct file *f, const int *types, size_t n)
{
    gguf_put_array(&f->w, "tokenizer.ggml.token_type", GGUF_INT32, n);
    for (size_t i = 0; i < n; i++)
        gguf_put_u32(&f->w, (uint32_t)types[i]);
    f->n_keys++;
}

static inline void put_scores(struct file *f, const float *scores, size_t n)
{
    gguf_put_array(&f->w, "tokenizer.ggml.scores", GGUF_FLOAT32, n);
    for (size_t i = 0; i < n; i++)
        gguf_put_f32(&f->w, scores[i]);
    f->n_keys++;
}

static inline void put_id(struct file *f, const char *key, uint32_t id)
{
    gguf_put_int_key(&f->w, key, id);
    f->n_keys++;
}

static inline void put_bool(struct file *f, const char *key, int value)
{
    gguf_put_bool_key(&f->w, key, value);
    f->n_keys++;
}

static inline void put_text(struct file *f, const char *key, const char *text)
{
    gguf_put_text_key(&f->w, key, text);
    f->n_keys++;
}

static inline struct gguf *finish(struct file *f)
{
    struct gguf *gguf;
    struct error err;
    f->w.data[16] = (uint8_t)f->n_keys;
    CHECK_OK(gguf_open_bytes(&gguf, f->w.data, f->w.len, "FILE", &err));
    return gguf;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const letters[] = {"a",   "b",    "c",          "ab",      "abc",
                                      "<s>", "</s>", "<|im_end|>", "\xc4\xa0"};
static const int letter_types[] = {1, 1, 1, 1, 1, 3, 3, 1, 1};
static const char *const letter_merges[] = {"a b", "ab c"};

/* Byte-level BPE of three letters and a blank. */
static inline void begin_letters(struct file *f, const char *pre)
{
    begin(f, "gpt2", pre);
    put_texts(f, "tokenizer.ggml.tokens", letters, COUNT(letters));
    put_types(f, letter_types, COUNT(letter_types));
    put_texts(f, "tokenizer.ggml.merges", letter_merges, COUNT(letter_merges));
}

#define MARK "\xe2\x96\x81"
static const char *const pieces[] = {"<unk>", "<s>", "</s>", MARK,      "a",     "b",
                                     "ab",    "ba",  "aba",  MARK "ab", "<tool>"};
static const int piece_types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4};

static inline void begin_pieces(struct file *f, const float *scores)
{
    static const float usual[] = {0, 0, 0, -9, -7, -8, -2, -1, -3, -4, 0};
    begin(f, "llama", NULL);
    put_texts(f, "tokenizer.ggml.tokens", pieces, COUNT(pieces));
    put_types(f, piece_types, COUNT(piece_types));
    put_scores(f, scores ? scores : usual, COUNT(pieces));
}
