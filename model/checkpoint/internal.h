/* How a checkpoint is put together: the layout says which tensors a config asks for, folder.c or
 * synthetic.c supplies them, and find.c looks them up. */
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
    /* Of a file only `data` is set; find.c checks type and shape when the tensor is asked for. */
    struct weight weight;
};

/* One mapped file with its table. Cutting the file short under a running program kills it
 * (SIGBUS), as with every mapped file. */
struct weight_file {
    char *name;
    struct file_view view;
    struct safetensors table;
};

struct checkpoint {
    char *name; /* without a list of layers */
    bool is_synthetic;
    struct model_config cfg;
    struct tensor_spec *layout;
    size_t n_layout;
    /* [cfg.n_layers] the numbers in the files of the layers that were chosen, and the layout of all
     * layers, to which names of tensors may point; NULL: none were chosen. */
    int *layers;
    struct tensor_spec *whole_layout;
    struct tensor *tensors; /* ascending by name once open is done */
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
    int core_layers; /* layers from here on add only tail times what they would */
    double tail;     /* at most 1 where the name says it, any size with agree=A */
};

/* model is zeroed. Errors: ERR_ARGUMENT names the option; those of reading SHAPE where it is a
 * path. */
int synthetic_parse_name(struct synthetic_model *model, const char *name, struct error *err);

/* Each fills cfg, layout, tensors (and files) of a checkpoint whose name is set. After a failure
 * checkpoint_close releases what there is. */
int checkpoint_open_folder(struct checkpoint *ck, struct error *err);
int checkpoint_open_synthetic(struct checkpoint *ck, struct error *err);
void checkpoint_close_files(struct checkpoint *ck);

/* The dimensions of a named shape, bos and eos unset. False when there is none of this name. */
bool checkpoint_named_shape(const char *name, struct model_config *cfg);
/* The names, separated by ", ", for an error text. */
void checkpoint_shape_names(char *text, size_t text_bytes);

/* find.c: sorts the tensors by name, as checkpoint_find needs them; checkpoint_open calls it
 * once. */
void checkpoint_sort_tensors(struct checkpoint *ck);
