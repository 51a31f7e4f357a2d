/* Types and functions that the files of the tokenizer share. The stages of a text:
 *
 *   text --runs of valid UTF-8--> added tokens cut out           encode.c, added.c
 *                                   |
 *                                 normalizer                     normalize.c
 *                                   |
 *                                 added tokens cut out once more (those that ask for it)
 *                                   |
 *                                 pre-tokenizer: words           pretokenize.c, pattern.c
 *                                   |
 *                                 merges: ids                    bpe.c
 *                                   |
 *                                 template: BOS and the like
 *
 * Bytes that are not UTF-8 directly become their byte tokens. decode.c and detokenize.c turn ids
 * into text. read_vocabulary.c, read_merges.c, read_components.c, read_decoder.c and table.c build
 * all this from the file. */
#pragma once

#include <jansson.h>

#include "model/tokenizer/added.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decode.h"
#include "model/tokenizer/gguf/vocabulary.h"
#include "model/tokenizer/ids.h"
#include "model/tokenizer/normalize.h"
#include "model/tokenizer/pretokenize.h"

enum {
    TOKENIZER_MAX_IDS = 1 << 22,
    TOKENIZER_MAX_DEPTH = 8, /* of Sequences in Sequences */
    TOKENIZER_MAX_ADDED_BYTES = 4096
};

struct tokenizer {
    struct token_table table;
    struct bpe bpe;
    struct normalizer_chain normalizers;
    struct splitter splitters[SPLITTER_MAX_STAGES];
    int n_splitters;
    struct added_set raw, normalized; /* searched before, after the normalizer */
    struct decoder decoder;
    struct token_ids prefix, suffix; /* of the post-processor's template */
    const char *remark;              /* about the file, or NULL */
};

/* ---- Reading the file: read_vocabulary.c (vocabulary, added tokens), read_merges.c,
 * read_components.c (components that work on text), read_decoder.c (decoder and template). ---- */

/* config: its "added_tokens_decoder" may name more added tokens; or NULL. lists: the vocabulary and
 * the merges, where root does not have them; or NULL. */
int tokenizer_read(struct tokenizer *tok, const json_t *root, const json_t *config,
                   const struct gguf_vocabulary *lists, const char *origin, struct error *err);

/* All of a GGUF file. */
int tokenizer_read_gguf(struct tokenizer *tok, const struct gguf *gguf, struct error *err);

/* Needs the token table. merges: of tokenizer.json, unless there are lists. */
int tokenizer_read_merges(struct tokenizer *tok, const json_t *merges,
                          const struct gguf_vocabulary *lists, const char *origin,
                          struct error *err);

/* A merge of two tokens into one. */
struct ranked_merge {
    int32_t left, right, id;
};

/* Makes the merges of a vocabulary without a list of them, the first one first: rank_merges.c. The
 * caller frees them. Errors: ERR_NO_MEMORY. */
int rank_merges(struct ranked_merge **merges, size_t *n, const struct token_table *table,
                const struct gguf_vocabulary *lists, struct error *err);

int tokenizer_read_normalizer(struct tokenizer *tok, const json_t *node, const char *origin,
                              struct error *err);
int tokenizer_read_splitter(struct tokenizer *tok, const json_t *node, const char *origin,
                            struct error *err);
/* node may be NULL: tokens are then joined by blanks, as Hugging Face does. */
int tokenizer_read_decoder(struct tokenizer *tok, const json_t *node, const char *origin,
                           struct error *err);
/* Needs the token table. */
int tokenizer_read_template(struct tokenizer *tok, const json_t *node, const char *origin,
                            struct error *err);

/* Helpers of the files that read components. */

/* One of the components of tokenizer.json. */
struct component_role {
    const char *name; /* in errors */
    const char *list; /* the member with the components of a Sequence */
    /* Reads a component of this type, which is no Sequence. */
    int (*read)(struct tokenizer *tok, const json_t *node, const char *type, const char *origin,
                struct error *err);
};

/* Reads a component, or those of a Sequence in their order. Errors: those of role->read;
 * ERR_FORMAT, ERR_UNSUPPORTED. */
int component_read(struct tokenizer *tok, const struct component_role *role, const json_t *node,
                   const char *origin, struct error *err);
/* Sets the error for a type that is not understood; `role` names the component. */
int component_unknown(const char *role, const char *type, const char *origin, struct error *err);
int component_need_char(const json_t *node, const char *key, char out[8], const char *origin,
                        struct error *err);
int component_read_replace(struct normalizer *stage, const json_t *node, const char *origin,
                           struct error *err);
int component_read_metaspace(struct splitter *stage, const json_t *node, const char *origin,
                             struct error *err);
