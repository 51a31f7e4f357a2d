/* Tensors of a folder that the layout does not ask for. They are refused by name, because a model
 * whose config.json does not announce its biases, norms or experts would compute something else
 * without an error. What cannot matter passes: empty tensors, tables of rope, which is computed
 * here, the shape beside a packed matrix, layers that only guess, and a head that repeats the
 * embedding that it is tied to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/ending.h"
#include "model/checkpoint/internal.h"

static const char head_name[] = "lm_head.weight", embedding_name[] = "model.embed_tokens.weight";

/* ---- a head beside a tied embedding ---- */

/* Equal types are compared as bytes. Other ones are taken to differ, which is right as well: then
 * the head is used as it is. */
static bool is_same(const struct tensor *a, const struct tensor *b)
{
    size_t len = (size_t)(a->entry->end - a->entry->begin);
    return strcmp(a->entry->dtype, b->entry->dtype) == 0 && a->entry->n_dims == b->entry->n_dims &&
           memcmp(a->entry->dims, b->entry->dims,
                  (size_t)a->entry->n_dims * sizeof *a->entry->dims) == 0 &&
           len == b->entry->end - b->entry->begin &&
           memcmp(a->weight.data, b->weight.data, len) == 0;
}

static bool is_empty(const struct tensor *tensor)
{
    return tensor->entry->end == tensor->entry->begin;
}

int checkpoint_untie_head(struct checkpoint *ck, struct error *err)
{
    const struct tensor *head = checkpoint_tensor(ck, head_name);
    const struct tensor *embedding = checkpoint_tensor(ck, embedding_name);
    if (!ck->cfg.tied_embeddings || !head || is_empty(head)) return 0;
    if (embedding) {
        file_expect(head->weight.data, (size_t)(head->entry->end - head->entry->begin));
        file_expect(embedding->weight.data,
                    (size_t)(embedding->entry->end - embedding->entry->begin));
        if (is_same(head, embedding)) return 0;
    }
    free(ck->layout);
    ck->layout = NULL;
    ck->n_layout = 0;
    ck->cfg.tied_embeddings = false;
    snprintf(ck->remarks[CHECKPOINT_OWN_HEAD], sizeof ck->remarks[0],
             "config.json says \"tie_word_embeddings\", but %s differs from the embedding, so it "
             "is used as the head",
             head_name);
    return checkpoint_layout(&ck->cfg, &ck->layout, &ck->n_layout, err);
}

/* ---- the others ---- */

static int by_name(const void *left, const void *right)
{
    const struct tensor_spec *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* The names of the whole layout, ascending. */
struct names {
    const struct tensor_spec **sorted;
    size_t n;
};

static bool has_name(const struct names *names, const char *name)
{
    struct tensor_spec wanted;
    const struct tensor_spec *at = &wanted;
    if (strlen(name) >= sizeof wanted.name) return false;
    strcpy(wanted.name, name);
    return bsearch(&at, names->sorted, names->n, sizeof at, by_name) != NULL;
}

/* True if the name is that of a packed matrix of the layout plus the ending of one of its parts. */
static bool is_part(const struct checkpoint *ck, const struct names *names, const char *name)
{
    static const char *const endings[] = {"_packed", "_scale", "_shape"};
    char matrix[TENSOR_NAME_BYTES], stored[STORED_NAME_BYTES];
    if (checkpoint_is_stored_part(ck, name, stored) && has_name(names, stored)) return true;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t len = strlen(name) - strlen(endings[i]);
        if (!ending_is(name, endings[i]) || len >= sizeof matrix) continue;
        memcpy(matrix, name, len);
        matrix[len] = '\0';
        return checkpoint_is_packed(ck, matrix) && has_name(names, matrix);
    }
    return false;
}

static bool is_of_rope(const char *name)
{
    return ending_is(name, "rotary_emb.inv_freq") || ending_is(name, "rotary_emb.cos_cached") ||
           ending_is(name, "rotary_emb.sin_cached");
}

/* Tools that quantize write scales of the KV cache, and biases of zeros where a matrix has none. */
static bool is_of_quantizing(const struct checkpoint *ck, const struct tensor *tensor)
{
    const char *name = tensor->name;
    if (!ck->scheme.method) return false;
    if (ending_is(name, ".k_scale") || ending_is(name, ".v_scale") || ending_is(name, ".q_scale")) {
        return true;
    }
    size_t n = (size_t)(tensor->entry->end - tensor->entry->begin);
    const uint8_t *bytes = tensor->weight.data;
    return ending_is(name, ".bias") && bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* True if the name is of one of the layers after the last one that num_nextn_predict_layers
 * announces. */
static bool is_of_guessing_layer(const struct checkpoint *ck, int n_layers, const char *name)
{
    int layer = 0;
    if (sscanf(name, "model.mtp_layers.%d.", &layer) == 1) { /* MiMo counts them from 0 */
        return layer >= 0 && layer < ck->n_guessing_layers;
    }
    return sscanf(name, "model.layers.%d.", &layer) == 1 && layer >= n_layers &&
           layer - n_layers < ck->n_guessing_layers;
}

/* Tensors of a head that are read elsewhere, or that only its training uses; and those of the model
 * whose MTP layer it is. */
static bool is_beside_head(const struct head_config *head, const char *name)
{
    static const char *const tails[] = {"d2t", "t2d", "mask_hidden", "verifier_norm.weight",
                                        "verifier_lm_head.weight"};
    static const char *const of_model[] = {"model.layers.", "model.norm."};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (strcmp(name, tails[i]) == 0) return true;
        if (strncmp(name, "model.", 6) == 0 && strcmp(name + 6, tails[i]) == 0) return true;
    }
    for (size_t i = 0; head->format == HEAD_MTP && i < sizeof of_model / sizeof *of_model; i++) {
        if (strncmp(name, of_model[i], strlen(of_model[i])) == 0) return true;
    }
    return false;
}

static bool is_known(const struct checkpoint *ck, const struct names *names,
                     const struct tensor *tensor)
{
    int n_layers = ck->whole_layers ? ck->whole_layers : ck->cfg.n_layers;
    const char *name = tensor->name;
    if (is_empty(tensor) || is_of_rope(name)) return true;
    if (ck->head && is_beside_head(ck->head, name)) return true;
    if (has_name(names, name)) {
        bool is_plain = strcmp(tensor->entry->dtype, "I8") != 0;
        return !checkpoint_is_packed(ck, name) && (is_plain || checkpoint_is_stored(ck, name));
    }
    if (is_of_quantizing(ck, tensor)) return true;
    return is_part(ck, names, name) || is_of_guessing_layer(ck, n_layers, name) ||
           (ck->cfg.tied_embeddings && strcmp(name, head_name) == 0); /* the embedding again */
}

static int names_open(struct names *names, const struct checkpoint *ck, struct error *err)
{
    const struct tensor_spec *layout = ck->whole_layout ? ck->whole_layout : ck->layout;
    names->n = ck->whole_layout ? ck->n_whole_layout : ck->n_layout;
    int rc = mem_array(&names->sorted, names->n, sizeof *names->sorted, err);
    if (rc) return rc;
    for (size_t i = 0; i < names->n; i++) {
        names->sorted[i] = &layout[i];
    }
    qsort(names->sorted, names->n, sizeof *names->sorted, by_name);
    return 0;
}

/* A tensor may be in two files only if it is the same in both. */
static int check_twins(const struct checkpoint *ck, struct error *err)
{
    for (size_t i = 1; i < ck->n_tensors; i++) {
        const struct tensor *a = &ck->tensors[i - 1], *b = &ck->tensors[i];
        if (strcmp(a->name, b->name) != 0 || is_same(a, b)) continue;
        return error_set(err, ERR_FORMAT,
                         "%s: two of its files have different tensors %.100s: %.100s and %.100s",
                         ck->name, a->name, a->file, b->file);
    }
    return 0;
}

int checkpoint_check_unread(const struct checkpoint *ck, struct error *err)
{
    enum { SHOWN = 3 };
    struct names names = {0};
    char text[SHOWN * 90] = "", more[40] = "";
    int n = 0, rc = 0;
    TRY(check_twins(ck, err));
    TRY(names_open(&names, ck, err));
    for (size_t i = 0; i < ck->n_tensors; i++) {
        if (is_known(ck, &names, &ck->tensors[i]) || n++ >= SHOWN) continue;
        size_t len = strlen(text);
        const char *name = ck->tensors[i].shown ? ck->tensors[i].shown : ck->tensors[i].name;
        snprintf(text + len, sizeof text - len, "%s%.80s", len ? ", " : "", name);
    }
    if (n > SHOWN) snprintf(more, sizeof more, " and %d more", n - SHOWN);
    if (n) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s: there are tensors that %s does not announce, and without them the "
                       "result might be another: %s%s; a model that is right without them has to "
                       "be saved without them",
                       ck->name, checkpoint_config_words(ck), text, more);
    }
out:
    free(names.sorted);
    return rc;
}
