/* A model as a GGUF file, version 2 or 3, or as the numbered files that one was split into:
 * metadata, which are keys with values, and a table of tensors. The files are mapped, and what is
 * returned here points into them. They are not trusted: after open every value and every tensor is
 * inside of its file, and no key and no tensor is there twice. Integers are little endian.
 *
 * Immutable after open; reads may come from several threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/system/file.h"

enum { GGUF_DIMS_MAX = 4 };

/* Kinds of values, by the file's numbers. */
enum gguf_kind {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64,
    GGUF_KINDS
};

/* Bytes of the file without a NUL after them, and not checked to be UTF-8. */
struct gguf_text {
    const char *data;
    size_t len;
};

/* An array of the metadata. n = 0: it is empty, or not there. */
struct gguf_array {
    enum gguf_kind kind; /* of its elements */
    uint64_t n;
    const uint8_t *data; /* NULL: the key is missing */
};

/* A tensor; dims[0] is the dimension whose elements are side by side, so a matrix of n_rows rows of
 * n_cols is {n_cols, n_rows}. */
struct gguf_tensor {
    const char *name;
    uint32_t type; /* of its elements, by the file's number: block_type_find has it */
    int n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* 1 after the last one */
    const uint8_t *data;
    uint64_t bytes;
};

struct gguf;

/* True if the first bytes of the file are those of a GGUF file, whatever its name. */
bool gguf_is_file(const char *path);

/* Opens a file, and where its name ends in -00001-of-0000N.gguf or another number of these, all N
 * of them. While a file is open, opening it again by the same path gives the same object, unless
 * the file has changed, so that a model and its tokenizer are parsed once.
 * Errors: ERR_NOT_FOUND, ERR_IO; ERR_FORMAT says what is wrong in which file; ERR_UNSUPPORTED a
 * version or a type of tensors that is not read; ERR_NO_MEMORY. */
int gguf_open(struct gguf **gguf, const char *path, struct error *err);
/* As gguf_open, for the bytes of one file, which must stay; origin names them in errors. */
int gguf_open_bytes(struct gguf **gguf, const uint8_t *data, size_t size_bytes, const char *origin,
                    struct error *err);
void gguf_close(struct gguf *gguf);

/* The path that was opened; the first file of several. It begins the errors of the readers here. */
const char *gguf_origin(const struct gguf *gguf);
/* The tensors [*n] of all files, ascending by name (strcmp). */
const struct gguf_tensor *gguf_tensors(const struct gguf *gguf, size_t *n);
/* NULL: there is none of this name. */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);
/* The mapped files, for hints about reading them, and their names without a folder. */
size_t gguf_n_files(const struct gguf *gguf);
const struct file_view *gguf_file(const struct gguf *gguf, size_t i, const char **name);

/* ---- metadata ---- */

size_t gguf_n_keys(const struct gguf *gguf);
/* Key i of the file, in the order of strcmp. */
const char *gguf_key(const struct gguf *gguf, size_t i);
bool gguf_has(const struct gguf *gguf, const char *key);

/* Typed reads. If the key is missing, *out keeps its value, the default.
 * Errors: ERR_FORMAT the value is of another type, or outside of [least, most]. An integer may be
 * of any width, with or without a sign; a number is an integer or a float. */
int gguf_read_int(const struct gguf *gguf, const char *key, int least, int most, int *out,
                  struct error *err);
int gguf_read_number(const struct gguf *gguf, const char *key, double *out, struct error *err);
int gguf_read_bool(const struct gguf *gguf, const char *key, bool *out, struct error *err);
int gguf_read_text(const struct gguf *gguf, const char *key, struct gguf_text *out,
                   struct error *err);

/* Arrays whose elements are integers of any width, numbers, booleans, or texts. */
int gguf_read_ints(const struct gguf *gguf, const char *key, struct gguf_array *out,
                   struct error *err);
int gguf_read_numbers(const struct gguf *gguf, const char *key, struct gguf_array *out,
                      struct error *err);
int gguf_read_bools(const struct gguf *gguf, const char *key, struct gguf_array *out,
                    struct error *err);
int gguf_read_texts(const struct gguf *gguf, const char *key, struct gguf_array *out,
                    struct error *err);

/* Element i of an array of ints (one that does not fit is the nearest that does), numbers or
 * bools. */
int64_t gguf_array_int(const struct gguf_array *array, uint64_t i);
double gguf_array_number(const struct gguf_array *array, uint64_t i);
bool gguf_array_bool(const struct gguf_array *array, uint64_t i);

/* Returns the text at *at and moves *at to the next one; *at begins as array->data, and the caller
 * counts to array->n. */
struct gguf_text gguf_next_text(const uint8_t **at);
bool gguf_text_is(const struct gguf_text *text, const char *wanted);

/* True if the key holds an array. */
bool gguf_is_array(const struct gguf *gguf, const char *key);
