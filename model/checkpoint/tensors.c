/* The tensors of a checkpoint, ascending by name. */
#include <stdlib.h>
#include <string.h>

#include "base/text/ending.h"
#include "model/checkpoint/internal.h"

static int tensor_by_name(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

void checkpoint_sort_tensors(struct checkpoint *ck)
{
    qsort(ck->tensors, ck->n_tensors, sizeof *ck->tensors, tensor_by_name);
}

int checkpoint_sort_names(struct checkpoint *ck, struct error *err)
{
    checkpoint_sort_tensors(ck);
    for (size_t i = 1; i < ck->n_tensors; i++) {
        if (strcmp(ck->tensors[i - 1].name, ck->tensors[i].name) != 0) continue;
        return error_set(err, ERR_FORMAT,
                         "%s has the tensor %.100s twice, in two files, under two names or once by "
                         "itself and once as a part of another; take one of them away",
                         ck->name, ck->tensors[i].name);
    }
    return 0;
}

const struct tensor *checkpoint_tensor(const struct checkpoint *ck, const char *name)
{
    struct tensor wanted = {.name = name};
    if (!ck->n_tensors) return NULL;
    return bsearch(&wanted, ck->tensors, ck->n_tensors, sizeof wanted, tensor_by_name);
}

/* Only the layers' matrices are packed. */
bool checkpoint_is_packed(const struct checkpoint *ck, const char *name)
{
    bool is_uniform = ck->cfg.stored == WEIGHTS_INT8 || ck->cfg.stored == WEIGHTS_INT4;
    return !ck->gguf && is_uniform && strncmp(name, "model.layers.", 13) == 0 &&
           ending_is(name, "_proj.weight");
}

const char *checkpoint_shown_name(const struct checkpoint *ck, const char *name,
                                  char room[GGUF_NAME_BYTES])
{
    return ck->gguf && gguf_file_name(ck->arch, name, room) ? room : name;
}

const char *checkpoint_config_words(const struct checkpoint *ck)
{
    return ck->gguf ? "the metadata" : "config.json";
}
