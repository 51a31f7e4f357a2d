/* How a checkpoint is put together: the layout says which tensors a config asks for; a folder or the
 * generator supplies them; checkpoint.c looks them up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "model/checkpoint/config.h"
#include "model/checkpoint/layout.h"
#include "model/checkpoint/read.h"
#include "model/checkpoint/safetensors.h"

/* A tensor that is there. */
struct tensor {
    const char *name;
    const struct safetensors_entry *entry; /* NULL: synthetic */
    struct weight
        weight; /* of a file: only `data` is set; the shape is judged when it is asked for */
};

/* One mapped file with its table. Cutting the file short under a running program kills it
 * (SIGBUS), as with every mapped file. */
struct weight_file {
    char *name;
    struct file_view view;
    struct safetensors table;
};

struct checkpoint {
    char *name;
    bool is_synthetic;
    struct model_config cfg;
    struct tensor_spec *layout;
    size_t n_layout;
    struct tensor *tensors; /* ascending by name once open is done */
    size_t n_tensors;
    struct weight_file *files;
    size_t n_files;
    uint64_t fingerprint;
};

/* A shape and its options, as checkpoint_synthetic_name.c reads them from a name. */
struct synthetic_model {
    struct model_config cfg;
    uint64_t seed;
    int share_layers; /* what layers add is measured out for this many: those of the shape before
                         layers=L, so that scales do not depend on it; the core's with agree=A */
    int core_layers;  /* layers from here on add only tail times what they would */
    double tail;      /* at most 1 where the name says it, any size with agree=A */
};

/* model is zeroed. Errors: ERR_ARGUMENT names the option; those of reading SHAPE where it is a path. */
int synthetic_parse_name(struct synthetic_model *model, const char *name, struct error *err);

/* Each fills cfg, layout, tensors (and files) of a checkpoint whose name is set; what they leave
 * behind on failure checkpoint_close releases. */
int checkpoint_open_folder(struct checkpoint *ck, struct error *err);
int checkpoint_open_synthetic(struct checkpoint *ck, struct error *err);
void checkpoint_close_files(struct checkpoint *ck);

/* The dimensions of a named shape, bos and eos unset. False when there is none of this name. */
bool checkpoint_named_shape(const char *name, struct model_config *cfg);
/* The names, separated by ", ", for an error text. */
void checkpoint_shape_names(char *text, size_t text_bytes);

/* find.c: sorts the tensors by name, as checkpoint_find needs them. Called once, by checkpoint_open. */
void checkpoint_sort_tensors(struct checkpoint *ck);
