/* How a checkpoint is put together: the layout says which tensors a config asks for, folder.c,
 * gguf_file.c or synthetic.c supplies them, and find.c looks them up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/system/file.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/config/head_config.h"
#include "model/checkpoint/gguf/names.h"
#include "model/checkpoint/layout.h"
#include "model/checkpoint/read.h"
#include "model/checkpoint/remark.h"
#include "model/checkpoint/safetensors.h"

struct renamed_tensor;

/* A tensor that is there. */
struct tensor {
    const char *name;
    const char *shown; /* the name in the file, where it is another one; NULL: it is `name` */
    const struct safetensors_entry *entry; /* NULL: synthetic */
    const char *file;                      /* its name; NULL: synthetic */
    /* The elements or their rule. Of a folder's file only `data` is set, of a GGUF file all but the
     * shape; find.c checks the others when the tensor is asked for. */
    struct weight weight;
    /* Elements from one row to the next in the file, where these are some of its columns; 0: they
     * are all. */
    uint64_t line;
};

/* One mapped file with its table. Cutting the file short under a running program kills it
 * (SIGBUS), as with every mapped file. */
struct weight_file {
    char *name;
    struct file_view view;
    bool is_lent; /* the view is another's, who unmaps it */
    struct safetensors table;
};

enum { CHECKPOINT_REMARK_BYTES = 600, CHECKPOINT_PATH_BYTES = 4096 };

struct checkpoint {
    char *name; /* without a list of layers */
    bool is_synthetic;
    struct gguf *gguf; /* NULL: a folder, or synthetic */
    const struct gguf_arch *arch;
    struct model_config cfg;
    struct tensor_spec *layout;
    size_t n_layout;
    /* [cfg.n_layers] the numbers in the files of the layers that were chosen, and the layout of all
     * layers, to which names of tensors may point; NULL: none were chosen. */
    int *layers;
    struct tensor_spec *whole_layout;
    size_t n_whole_layout;
    int whole_layers;      /* their number; 0: none were chosen */
    int n_guessing_layers; /* layers of the files after these, which are not read */
    struct quant_scheme scheme;
    struct config_mask mask;
    struct head_config *head;        /* NULL: it is no head */
    const struct checkpoint *lender; /* of the embedding and lm_head that a head lacks, or NULL */
    int32_t *head_ids;               /* [head->n_columns] the ids of lm_head's rows; NULL: all */
    uint16_t *head_mask;             /* [A Ht] bf16, P-EAGLE's features of further rows, or NULL */
    char unknown_keys[CONFIG_UNKNOWN_BYTES];                   /* "": there are none */
    char remarks[CHECKPOINT_REMARKS][CHECKPOINT_REMARK_BYTES]; /* "": nothing to say */
    struct renamed_tensor *renamed; /* what renamed tensors point to; NULL: none are (rename.c) */
    struct tensor *tensors;         /* ascending by name once open is done */
    size_t n_tensors;
    struct weight_file *files;
    size_t n_files;
    uint64_t fingerprint;
};

/* A shape and its options, as synthetic_name.c reads them from a name. */
struct synthetic_model {
    struct model_config cfg;
    uint64_t seed;
    /* The size of what a layer adds is chosen for this many layers: those of the shape before
     * layers=L, so that scales do not depend on it; with agree=A those of the core. */
    int share_layers;
    int core_layers;         /* layers from here on add only tail times what they would */
    struct config_rest rest; /* where SHAPE is a path */
    enum block_kind block;   /* of the matrices; BLOCK_UNREAD: they are bf16 */
    double tail;             /* at most 1 where the name says it, any size with agree=A */
};

/* model is zeroed. Errors: ERR_ARGUMENT names the option; those of reading SHAPE where it is a
 * path. */
int synthetic_parse_name(struct synthetic_model *model, const char *name, struct error *err);

/* Each fills cfg, layout, tensors (and files) of a checkpoint whose name is set, and *rest, which
 * is zeroed, by what its config.json says besides. After a failure checkpoint_close releases what
 * there is. */
int checkpoint_open_folder(struct checkpoint *ck, struct config_rest *rest, struct error *err);
int checkpoint_open_gguf(struct checkpoint *ck, struct config_rest *rest, struct error *err);
int checkpoint_open_synthetic(struct checkpoint *ck, struct config_rest *rest, struct error *err);
void checkpoint_close_files(struct checkpoint *ck);

/* folder.c, for heads: config.json of the folder, which the caller frees, and its path; true if the
 * folder has a file of this name; opening the files of tensors, or one that has all of them. */
int checkpoint_read_config(const struct checkpoint *ck, char path[CHECKPOINT_PATH_BYTES],
                           char **text, size_t *len, struct error *err);
bool checkpoint_has_file(const struct checkpoint *ck, const char *name);
int checkpoint_open_tensors(struct checkpoint *ck, struct error *err);
int checkpoint_open_single(struct checkpoint *ck, const char *file, struct error *err);

/* head.c: a head's folder. The prefix of the names of tensors that are the target's; what follows
 * is their name there. */
static const char checkpoint_lent_prefix[] = "target:";
struct head_options;
int checkpoint_open_head_folder(struct checkpoint *ck, struct config_rest *rest,
                                const struct head_options *options, struct error *err);

/* head_places.c, for heads of places whose tensors are sorted: completes ck->head and ck->cfg by
 * what the tensors are, but for what a target lends. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int checkpoint_settle_places(struct checkpoint *ck, const struct places_claims *claims,
                             struct error *err);

/* The dimensions of a named shape, bos and eos unset. False when there is none of this name. */
bool checkpoint_named_shape(const char *name, struct model_config *cfg);
/* The names, separated by ", ", for an error text. */
void checkpoint_shape_names(char *text, size_t text_bytes);

/* tensors.c: sorts the tensors by name, as lookups need them; checkpoint_open calls it once. The
 * tensor of this name in the files; NULL: there is none. */
void checkpoint_sort_tensors(struct checkpoint *ck);
/* As checkpoint_sort_tensors, but two of one name are refused, because which of them is read would
 * be left to chance. Errors: ERR_FORMAT. */
int checkpoint_sort_names(struct checkpoint *ck, struct error *err);
const struct tensor *checkpoint_tensor(const struct checkpoint *ck, const char *name);
/* True if a matrix of this name is packed, in a model of int8 or int4. */
bool checkpoint_is_packed(const struct checkpoint *ck, const char *name);
/* The name of a tensor as the model's files have it; valid as long as room and name. */
const char *checkpoint_shown_name(const struct checkpoint *ck, const char *name,
                                  char room[GGUF_NAME_BYTES]);
/* "config.json", or the words for what a GGUF file has in its place. */
const char *checkpoint_config_words(const struct checkpoint *ck);

/* rename.c: gives the tensors of the files the names that the layout has. is_text_part: config.json
 * is of a model that also sees. Errors: ERR_FORMAT, ERR_NO_MEMORY. */
int checkpoint_rename_tensors(struct checkpoint *ck, bool is_text_part, struct error *err);

/* stored_find.c: matrices of folders with cfg.stored == WEIGHTS_BLOCKS, by the scheme. True if
 * X.weight is stored quantized; true if a tensor is a part of such a matrix, whose name is written
 * then; finding one. Errors: as checkpoint_find. */
enum { STORED_NAME_BYTES = 2 * TENSOR_NAME_BYTES };
bool checkpoint_is_stored(const struct checkpoint *ck, const char *name);
bool checkpoint_is_stored_part(const struct checkpoint *ck, const char *name,
                               char matrix[STORED_NAME_BYTES]);
int checkpoint_find_stored(const struct checkpoint *ck, const char *name, int n_rows, int n_cols,
                           struct weight *weight, struct error *err);
/* Makes WEIGHTS_BLOCKS of a folder whose config says int4 or int8, but whose tensors are stored in
 * other ways, too. Errors: ERR_FORMAT no matrix is quantized, though config.json says so. */
int checkpoint_settle_stored(struct checkpoint *ck, struct error *err);

/* unread.c, for a folder whose tensors are sorted. The first one is called before layers are
 * chosen: where config.json ties the head to the embedding, but the files have another head, the
 * model is not tied, as in transformers. The second one refuses tensors of which nobody knows
 * whether they matter. Errors: ERR_UNSUPPORTED names the tensors; ERR_FORMAT; ERR_NO_MEMORY. */
int checkpoint_untie_head(struct checkpoint *ck, struct error *err);
int checkpoint_check_unread(const struct checkpoint *ck, struct error *err);
