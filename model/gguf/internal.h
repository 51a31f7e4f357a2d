/* One file of a GGUF model: parse.c reads its header, keys.c the keys, tensors.c the table of
 * tensors, each with the functions of reader.c; metadata.c reads values, and files.c puts the files
 * together. */
#pragma once

#include "model/gguf/gguf.h"

/* A key with its value, which lies in the file. */
struct gguf_entry {
    char *key;
    enum gguf_kind kind;
    enum gguf_kind element; /* of an array */
    uint64_t n;             /* elements of an array; 1 */
    const uint8_t *data;    /* of the value; of the first element of an array */
};

struct gguf_file {
    char *name; /* without a folder */
    struct file_view view;
    bool is_mapped;
    struct gguf_entry *entries; /* ascending by key */
    size_t n_entries;
    struct gguf_tensor *tensors; /* ascending by name */
    size_t n_tensors;
};

struct gguf {
    char *origin;
    struct gguf_file *files; /* the metadata are those of the first one */
    size_t n_files;
    struct gguf_tensor *tensors; /* of all files; the names are theirs */
    size_t n_tensors;
    int n_more_holders; /* after the first, of those who opened the same files; files.c locks it */
};

/* A place in a file that is being read. */
struct gguf_reader {
    const uint8_t *data;
    size_t size, at;
    const char *origin;
};

/* Moves over n bytes, which it returns in *out. Errors: ERR_FORMAT the file ends before; the
 * sentence says in what. */
int gguf_take(struct gguf_reader *in, uint64_t n, const char *what, const uint8_t **out,
              struct error *err);
int gguf_take_u32(struct gguf_reader *in, const char *what, uint32_t *out, struct error *err);
int gguf_take_u64(struct gguf_reader *in, const char *what, uint64_t *out, struct error *err);
/* A name of at most most_bytes, as a text of its own, which the caller frees. Errors: ERR_FORMAT it
 * is no text, or too long. */
int gguf_take_name(struct gguf_reader *in, size_t most_bytes, const char *what, char **out,
                   struct error *err);

/* Little-endian integers of a file. */
uint32_t gguf_u32(const uint8_t *at);
uint64_t gguf_u64(const uint8_t *at);

/* Reads the bytes of file->view. On failure the caller frees what there is. */
int gguf_parse(struct gguf_file *file, const char *origin, struct error *err);
/* Reads n_keys keys from *in on. */
int gguf_parse_keys(struct gguf_file *file, struct gguf_reader *in, uint64_t n_keys,
                    struct error *err);
/* Reads the table of n_tensors from *in on; alignment: of the tensors' data. */
int gguf_parse_tensors(struct gguf_file *file, struct gguf_reader *in, uint64_t n_tensors,
                       uint64_t alignment, struct error *err);
void gguf_file_free(struct gguf_file *file);

/* NULL: there is none. */
const struct gguf_entry *gguf_find_entry(const struct gguf_file *file, const char *key);
/* Reads an integer of a file, as gguf_read_int does. */
int gguf_entry_int(const struct gguf_file *file, const char *origin, const char *key, int least,
                   int most, int *out, struct error *err);
/* Bytes of an element of this kind; 0: a string or an array, whose elements have a length each. */
size_t gguf_kind_bytes(enum gguf_kind kind);
