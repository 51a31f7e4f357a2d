/* Opening a head's folder: its tensors say which format it is, and they have to agree with what
 * config.json says. */
#include "model/checkpoint/head.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/system/hub_cache.h"
#include "base/text/ending.h"
#include "model/checkpoint/find.h"
#include "model/checkpoint/internal.h"
#include "model/numerics/numerics.h"

/* A folder that is being opened. */
struct opening {
    struct checkpoint *ck;
    struct head_config *head;
    struct head_claims claims;
    const struct head_options *options;
    const char *root; /* before the names of all tensors: "" or "model." */
};

static const struct tensor *tensor_of(const struct opening *o, enum head_tensor which)
{
    return checkpoint_tensor(o->ck, o->head->names[which]);
}

/* ---- names ---- */

/* Sets the name of a tensor outside of the layers: with the root, unless the files have it
 * without. */
static void set_name(struct opening *o, enum head_tensor which, const char *tail)
{
    char *name = o->head->names[which];
    snprintf(name, HEAD_NAME_BYTES, "%s%s", o->root, tail);
    if (!checkpoint_tensor(o->ck, name) && checkpoint_tensor(o->ck, tail)) {
        snprintf(name, HEAD_NAME_BYTES, "%s", tail);
    }
}

/* Sets the name of a tensor that is next to those of the first layer. */
static void set_layer_name(struct opening *o, enum head_tensor which, const char *tail)
{
    snprintf(o->head->names[which], HEAD_NAME_BYTES, "%s%s", o->head->first_layer, tail);
}

/* Finds out how the files call the layers. */
static int find_layers(struct opening *o, struct error *err)
{
    static const struct {
        const char *root, *first, *layers;
    } eagle[] = {{"", "midlayer.", ""},
                 {"", "layers.0.", "layers."},
                 {"model.", "midlayer.", ""},
                 {"model.", "layers.0.", "layers."}};
    struct head_config *head = o->head;
    char name[HEAD_NAME_BYTES];
    if (head->format == HEAD_MTP) {
        o->root = "model.";
        snprintf(head->first_layer, sizeof head->first_layer, "model.mtp_layers.0.");
        return 0;
    }
    for (size_t i = 0; i < sizeof eagle / sizeof *eagle; i++) {
        snprintf(name, sizeof name, "%s%sself_attn.q_proj.weight", eagle[i].root, eagle[i].first);
        if (!checkpoint_tensor(o->ck, name)) continue;
        o->root = eagle[i].root;
        snprintf(head->first_layer, sizeof head->first_layer, "%s%s", o->root, eagle[i].first);
        snprintf(head->layers, sizeof head->layers, "%s%s", o->root, eagle[i].layers);
        if (*eagle[i].layers || o->ck->cfg.n_layers == 1) return 0;
        return error_set(err, ERR_FORMAT,
                         "%s: \"num_hidden_layers\" = %d, but the one layer is called %s",
                         o->ck->name, o->ck->cfg.n_layers, head->first_layer);
    }
    return error_set(err, ERR_FORMAT,
                     "%s has neither midlayer.self_attn.q_proj.weight nor "
                     "layers.0.self_attn.q_proj.weight, so it is no head of %s",
                     o->ck->name, head->format == HEAD_BLOCK ? "DFlash" : "EAGLE");
}

static void set_names(struct opening *o)
{
    set_name(o, HEAD_EMBEDDING, "embed_tokens.weight");
    set_name(o, HEAD_LOGITS, "lm_head.weight");
    if (o->head->format == HEAD_MTP) {
        set_layer_name(o, HEAD_TOKEN_NORM, "token_layernorm.weight");
        set_layer_name(o, HEAD_FEATURE_NORM, "hidden_layernorm.weight");
        set_layer_name(o, HEAD_JOIN, "input_proj.weight");
        set_layer_name(o, HEAD_FINAL_NORM, "final_layernorm.weight");
        return;
    }
    set_name(o, HEAD_FC, "fc.weight");
    set_name(o, HEAD_FC_BIAS, "fc.bias");
    set_name(o, HEAD_JOIN, "fc.weight"); /* EAGLE-1 joins with it */
    set_name(o, HEAD_JOIN_BIAS, "fc.bias");
    set_name(o, HEAD_FEATURES_NORM, "input_norm.weight");
    set_name(o, HEAD_FINAL_NORM, "norm.weight");
    if (o->head->format == HEAD_BLOCK) {
        set_name(o, HEAD_FEATURE_NORM, "hidden_norm.weight");
        set_name(o, HEAD_CHAIN_FIRST, "markov_head.markov_w1.weight");
        set_name(o, HEAD_CHAIN_SECOND, "markov_head.markov_w2.weight");
        set_name(o, HEAD_CONFIDENCE, "confidence_head.proj.weight");
        set_name(o, HEAD_CONFIDENCE_BIAS, "confidence_head.proj.bias");
        return;
    }
    set_layer_name(o, HEAD_TOKEN_NORM, "input_layernorm.weight");
    set_layer_name(o, HEAD_FEATURE_NORM, "hidden_norm.weight");
}

/* The norms of single features, by their name or the older one. */
static void set_feature_norms(struct opening *o)
{
    static const char *const old[] = {"aux_norm_low.weight", "aux_norm_mid.weight",
                                      "aux_norm_high.weight"};
    enum { N_OLD = sizeof old / sizeof *old };
    for (int i = 0; i < o->head->entry.n_features; i++) {
        char *name = o->head->feature_norms[i];
        snprintf(name, HEAD_NAME_BYTES, "%sfc_norm.%d.weight", o->root, i);
        if (checkpoint_tensor(o->ck, name) || i >= N_OLD) continue;
        char former[HEAD_NAME_BYTES];
        snprintf(former, sizeof former, "%s%s", o->root, old[i]);
        if (checkpoint_tensor(o->ck, former)) snprintf(name, HEAD_NAME_BYTES, "%s", former);
    }
}

/* ---- formats ---- */

/* A single feature that the layers read as it is. */
static int check_without_fc(const struct opening *o, struct error *err)
{
    const struct head_entry *entry = &o->head->entry;
    int dim = o->ck->cfg.dim;
    if (entry->feature_dim != dim) {
        return error_set(err, ERR_FORMAT,
                         "%s: features of width %d do not fit a head of width %d without %s",
                         o->ck->name, entry->feature_dim, dim, o->head->names[HEAD_FC]);
    }
    if (!o->claims.has_features_norm && !o->claims.has_fc_norms && !entry->has_fc_bias) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: config.json or a bias speaks of what is done around %s, which is not "
                     "there",
                     o->ck->name, o->head->names[HEAD_FC]);
}

/* The number of features follows from the width of fc. */
static int count_features(struct opening *o, struct error *err)
{
    struct head_entry *entry = &o->head->entry;
    const struct tensor *fc = tensor_of(o, HEAD_FC);
    int claimed = o->claims.is_single ? 1 : o->claims.n_features;
    entry->has_fc = fc != NULL;
    entry->has_fc_bias = tensor_of(o, HEAD_FC_BIAS) != NULL;
    entry->n_features = 1;
    if (!fc && o->claims.is_single) return check_without_fc(o, err);
    if (!fc) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %s", o->ck->name,
                         o->head->names[HEAD_FC]);
    }
    uint64_t width = fc->entry->n_dims == 2 ? fc->entry->dims[1] : 0;
    uint64_t feature = (uint64_t)entry->feature_dim;
    if (width == 0 || width % feature || width / feature > HEAD_FEATURES_MAX) {
        return error_set(err, ERR_FORMAT,
                         "%s: %s has rows of %" PRIu64 ", which are not 1 to %d features of %d",
                         o->ck->name, fc->name, width, HEAD_FEATURES_MAX, entry->feature_dim);
    }
    entry->n_features = (int)(width / feature);
    if (!claimed) claimed = o->head->n_ids;
    if (!claimed || claimed == entry->n_features) return 0;
    return error_set(err, ERR_FORMAT, "%s: config.json announces %d feature%s, but %s takes %d",
                     o->ck->name, claimed, claimed == 1 ? "" : "s", fc->name, entry->n_features);
}

static int settle_eagle3(struct opening *o, struct error *err)
{
    struct head_config *head = o->head;
    struct head_entry *entry = &head->entry;
    const struct head_claims *claims = &o->claims;
    enum head_choice keeps = o->options->norm_before_residual;
    int rc = 0;
    head->format = HEAD_EAGLE3;
    TRY(count_features(o, err));
    set_feature_norms(o);
    head->reads_normed = claims->is_single || (entry->n_features == 1 && head->n_ids == 0);
    if (claims->has_features_norm) entry->norms = FEATURES_NORMED_WHOLE;
    if (claims->has_fc_norms) entry->norms = FEATURES_NORMED_APART;
    entry->norms_token = entry->norms_feature = true;
    head->has_final_norm = true;
    head->recycles_normed = claims->norm_output == HEAD_YES;
    if (keeps == HEAD_AS_STORED) keeps = claims->norm_before_residual;
    if (keeps == HEAD_AS_STORED && head->is_speculators) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: config.json lacks \"norm_before_residual\", which programs read as "
                         "true or as false where it is missing; write into it how the head was "
                         "trained",
                         o->ck->name);
    }
    entry->keeps_normed = keeps == HEAD_YES;
out:
    return rc;
}

/* Heads whose features are of their own width, joined with the embedding by a matrix. */
static int settle_joined(struct opening *o, struct error *err)
{
    struct head_config *head = o->head;
    bool is_mtp = head->format == HEAD_MTP;
    head->entry.n_features = 1;
    head->reads_normed = true;
    head->entry.has_join = true;
    head->entry.has_join_bias = !is_mtp && tensor_of(o, HEAD_JOIN_BIAS) != NULL;
    head->entry.norms_token = head->entry.norms_feature = is_mtp;
    head->entry.norms_input = head->entry.feature_first = is_mtp;
    head->has_final_norm = head->recycles_normed = is_mtp;
    if (!is_mtp) head->format = HEAD_EAGLE1;
    if (head->entry.feature_dim == o->ck->cfg.dim) return 0;
    return error_set(err, ERR_FORMAT, "%s: features of width %d do not fit a head of width %d",
                     o->ck->name, head->entry.feature_dim, o->ck->cfg.dim);
}

/* The width of what the confidence reads: of a row's hidden state, maybe with the chain's row of
 * the guess before. */
static int confidence_width(const struct opening *o)
{
    int dim = o->ck->cfg.dim, with_chain = dim + o->head->block.rank;
    const struct tensor *weight = tensor_of(o, HEAD_CONFIDENCE);
    if (!weight) return 0;
    uint64_t width = weight->entry->n_dims == 2 ? weight->entry->dims[1] : 0;
    return width == (uint64_t)with_chain ? with_chain : dim;
}

static int settle_block(struct opening *o, struct error *err)
{
    struct head_config *head = o->head;
    struct head_entry *entry = &head->entry;
    int rc = 0;
    if (checkpoint_has_file(o->ck, "mask_embedding.pt")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s has the embedding of its masks in mask_embedding.pt, which is a "
                         "program of Python; write it into row %d of an embed_tokens.weight of its "
                         "own",
                         o->ck->name, head->mask_token_id);
    }
    TRY(count_features(o, err));
    entry->norms_feature = entry->norms_input = true;
    head->has_final_norm = true;
    head->block.confidence_width = confidence_width(o);
    head->block.has_confidence_bias = tensor_of(o, HEAD_CONFIDENCE_BIAS) != NULL;
out:
    return rc;
}

static int settle_format(struct opening *o, struct error *err)
{
    const struct model_config *cfg = &o->ck->cfg;
    bool is_eagle3 = tensor_of(o, HEAD_FEATURE_NORM) != NULL;
    int claimed = o->claims.target_dim;
    o->head->entry.feature_dim = claimed ? claimed : cfg->dim;
    if (o->head->format == HEAD_MTP) return settle_joined(o, err);
    if (o->head->format == HEAD_BLOCK) return settle_block(o, err);
    if (is_eagle3) return settle_eagle3(o, err);
    if (tensor_of(o, HEAD_JOIN)) return settle_joined(o, err);
    return error_set(err, ERR_UNSUPPORTED,
                     "%s has neither %s nor %s, so it is a model and no head: a model drafts with "
                     "--draft, and one that brings a head has MTP layers",
                     o->ck->name, o->head->names[HEAD_FC], o->head->names[HEAD_FEATURE_NORM]);
}

/* ---- the target ---- */

/* Makes a tensor that the head lacks the target's; its name then tells checkpoint_find so. */
static void borrow(struct opening *o, enum head_tensor which, const char *name)
{
    enum head_source *from =
        which == HEAD_EMBEDDING ? &o->head->embedding_from : &o->head->logits_from;
    if (tensor_of(o, which)) return;
    *from = o->options->target ? HEAD_LENT : HEAD_LACKING;
    if (*from == HEAD_LENT) {
        snprintf(o->head->names[which], HEAD_NAME_BYTES, "%s%s", checkpoint_lent_prefix, name);
    }
}

/* The tensors that only the target may have. What it does to its logits belongs to its lm_head. */
static void borrow_all(struct opening *o)
{
    static const char embedding[] = "model.embed_tokens.weight", logits[] = "lm_head.weight";
    const struct checkpoint *target = o->options->target;
    struct head_config *head = o->head;
    struct model_config *cfg = &o->ck->cfg;
    if (head->embedding_from != HEAD_UNUSED) borrow(o, HEAD_EMBEDDING, embedding);
    if (head->logits_from == HEAD_UNUSED) return;
    borrow(o, HEAD_LOGITS, target && target->cfg.tied_embeddings ? embedding : logits);
    if (!head->places.n || head->logits_from != HEAD_LENT) return;
    cfg->vocab_size = head->n_columns = target->cfg.vocab_size;
    cfg->logit_scale = target->cfg.logit_scale;
    cfg->logit_softcap = target->cfg.logit_softcap;
}

static int check_target(struct opening *o, struct error *err)
{
    const struct checkpoint *target = o->options->target;
    const struct model_config *cfg = &o->ck->cfg;
    const struct head_config *head = o->head;
    borrow_all(o);
    o->ck->lender = target;
    if (!target) return 0;
    if (target->cfg.dim != head->entry.feature_dim) {
        return error_set(err, ERR_FORMAT,
                         "%s reads features of width %d, but %s has the width %d: it is a head of "
                         "another model",
                         o->ck->name, head->entry.feature_dim, target->name, target->cfg.dim);
    }
    if (target->cfg.vocab_size != cfg->vocab_size) {
        return error_set(err, ERR_FORMAT,
                         "%s is for a vocabulary of %d ids, but that of %s has %d: it is a head of "
                         "another model",
                         o->ck->name, cfg->vocab_size, target->name, target->cfg.vocab_size);
    }
    bool borrows = head->embedding_from == HEAD_LENT || head->logits_from == HEAD_LENT;
    if (borrows && target->cfg.dim != cfg->dim) {
        return error_set(err, ERR_FORMAT,
                         "%s lacks an embedding or lm_head of its width of %d, and those of %s are "
                         "%d wide",
                         o->ck->name, cfg->dim, target->name, target->cfg.dim);
    }
    return 0;
}

/* ---- the reduced vocabulary ---- */

/* d2t[i] is the distance of id i of the target from i. */
static int read_ids(struct opening *o, const struct tensor *map, struct error *err)
{
    int n = o->head->n_columns, vocab = o->ck->cfg.vocab_size, rc = 0;
    TRY(mem_array(&o->ck->head_ids, (size_t)n, sizeof *o->ck->head_ids, err));
    for (int i = 0; i < n; i++) {
        int64_t distance;
        memcpy(&distance, map->weight.data + (size_t)i * sizeof distance, sizeof distance);
        bool fits = distance >= 0 && distance < vocab - i;
        int32_t id = fits ? (int32_t)(i + distance) : -1;
        if (!fits || (i > 0 && id <= o->ck->head_ids[i - 1])) {
            return error_set(err, ERR_FORMAT,
                             "%s: d2t[%d] is %" PRId64 ", but the ids %d + d2t must ascend within "
                             "the vocabulary of %d",
                             o->ck->name, i, distance, i, vocab);
        }
        o->ck->head_ids[i] = id;
    }
out:
    return rc;
}

static int settle_columns(struct opening *o, struct error *err)
{
    char name[HEAD_NAME_BYTES];
    int vocab = o->ck->cfg.vocab_size, claimed = o->claims.n_columns;
    const struct tensor *map = checkpoint_tensor(o->ck, "d2t");
    if (!map) {
        snprintf(name, sizeof name, "%sd2t", o->root);
        map = checkpoint_tensor(o->ck, name);
    }
    o->head->n_columns = claimed ? claimed : vocab;
    if (!map && o->head->n_columns == vocab) return 0;
    if (!map) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"draft_vocab_size\" = %d of %d ids, but the tensor d2t, which says "
                         "which ones, is missing",
                         o->ck->name, o->head->n_columns, vocab);
    }
    uint64_t n = map->entry->n_dims == 1 ? map->entry->dims[0] : 0;
    if (!claimed && n > 0 && n <= (uint64_t)vocab) o->head->n_columns = (int)n;
    if (strcmp(map->entry->dtype, "I64") != 0 || n != (uint64_t)o->head->n_columns ||
        n > (uint64_t)vocab) {
        return error_set(err, ERR_FORMAT,
                         "%s: the tensor d2t must be %d integers of 64 bits for a vocabulary of %d",
                         o->ck->name, o->head->n_columns, vocab);
    }
    return read_ids(o, map, err);
}

/* ---- P-EAGLE ---- */

static int read_mask(struct opening *o, struct error *err)
{
    char name[HEAD_NAME_BYTES];
    struct weight weight;
    int width = o->head->entry.n_features * o->head->entry.feature_dim, rc = 0;
    snprintf(name, sizeof name, "%smask_hidden", o->root);
    const struct tensor *mask = checkpoint_tensor(o->ck, name);
    if (!mask) mask = checkpoint_tensor(o->ck, strcpy(name, "mask_hidden"));
    if (!mask) return 0;
    TRY(checkpoint_find(o->ck, name, 1, width, &weight, err));
    TRY(mem_array(&o->ck->head_mask, (size_t)width, sizeof *o->ck->head_mask, err));
    weight_read_bf16(&weight, 0, 0, width, o->ck->head_mask);
    for (int i = 0; i < width; i++) {
        if (isfinite(num_bf16_to_float(o->ck->head_mask[i]))) continue;
        return error_set(err, ERR_FORMAT, "%s: %s has an element that is no number", o->ck->name,
                         name);
    }
out:
    return rc;
}

/* ---- open ---- */

/* A file in place of the folder: says where the folder is, or how one is made. */
static int refuse_file(const char *name, struct error *err)
{
    static const char wanted[] = "a head is a folder with config.json and safetensors files";
    const char *slash = strrchr(name, '/');
    int len = slash ? (int)(slash - name) : 1;
    const char *folder = slash ? name : ".";
    struct stat st;
    if (stat(name, &st) || !S_ISREG(st.st_mode)) return 0;
    if (ending_is(name, ".gguf")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%.200s is a GGUF file, of which models are read but no heads: %s", name,
                         wanted);
    }
    if (ending_is(name, ".pt") || ending_is(name, ".pth")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%.200s is a file of PyTorch, but %s: of Medusa's medusa_lm_head.pt and "
                         "the config.json beside it tools/convert_medusa.py makes one",
                         name, wanted);
    }
    if (ending_is(name, ".bin")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%.200s is a file of PyTorch, but %s: convert it with torch.load(..., "
                         "weights_only=True) and safetensors.torch.save_file to model.safetensors "
                         "and name the folder, %.*s",
                         name, wanted, len, folder);
    }
    if (ending_is(name, ".safetensors") || ending_is(name, ".json")) {
        return error_set(err, ERR_UNSUPPORTED, "%.200s is a file, but %s: name its folder, %.*s",
                         name, wanted, len, folder);
    }
    return error_set(err, ERR_UNSUPPORTED, "%.200s is a file, but %s", name, wanted);
}

/* Medusa's own files: its training writes medusa_lm_head.pt. */
static int open_medusa(struct checkpoint *ck, struct error *err)
{
    static const char stored[] = "medusa_lm_head.safetensors";
    if (checkpoint_has_file(ck, stored)) return checkpoint_open_single(ck, stored, err);
    int rc = checkpoint_open_tensors(ck, err);
    if (rc == ERR_NOT_FOUND && checkpoint_has_file(ck, "medusa_lm_head.pt")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s has its tensors in medusa_lm_head.pt, which is a program of Python; "
                         "tools/convert_medusa.py makes a folder of it that can be read",
                         ck->name);
    }
    return rc;
}

static int open_tensors(struct checkpoint *ck, struct error *err)
{
    if (ck->head->format == HEAD_MEDUSA) return open_medusa(ck, err);
    int rc = checkpoint_open_tensors(ck, err);
    if (rc == ERR_NOT_FOUND && checkpoint_has_file(ck, "pytorch_model.bin")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s has its tensors in pytorch_model.bin, which is a program of Python; "
                         "convert it with torch.load(..., weights_only=True) and "
                         "safetensors.torch.save_file to model.safetensors",
                         ck->name);
    }
    return rc;
}

int checkpoint_open_head_folder(struct checkpoint *ck, struct config_rest *rest,
                                const struct head_options *options, struct error *err)
{
    struct opening o = {.ck = ck, .options = options};
    char path[CHECKPOINT_PATH_BYTES], *text = NULL;
    size_t len = 0;
    int rc = 0;
    TRY(refuse_file(ck->name, err));
    TRY(mem_array(&ck->head, 1, sizeof *ck->head, err));
    o.head = ck->head;
    TRY(checkpoint_read_config(ck, path, &text, &len, err));
    TRY(head_config_parse(o.head, &o.claims, &ck->cfg, rest, text, len, path, err));
    TRY(open_tensors(ck, err));
    TRY(checkpoint_sort_names(ck, err));
    if (o.head->format == HEAD_MEDUSA || o.head->format == HEAD_BLOCKWISE) {
        TRY(checkpoint_settle_places(ck, &o.claims.places, err));
        TRY(check_target(&o, err));
    } else {
        TRY(find_layers(&o, err));
        set_names(&o);
        TRY(settle_format(&o, err));
        TRY(settle_columns(&o, err));
        TRY(check_target(&o, err));
        TRY(read_mask(&o, err));
    }
    if (ck->cfg.o_bias) {
        char name[2 * HEAD_NAME_BYTES];
        snprintf(name, sizeof name, "%sself_attn.o_proj.bias", o.head->first_layer);
        ck->cfg.o_bias = checkpoint_tensor(ck, name) != NULL;
    }
    TRY(checkpoint_head_layout(&ck->cfg, o.head, &ck->layout, &ck->n_layout, err));
out:
    free(text);
    return rc;
}

bool checkpoint_is_head_folder(const char *name)
{
    char folder[HUB_PATH_BYTES], path[CHECKPOINT_PATH_BYTES], *text = NULL;
    struct checkpoint ck = {.name = folder};
    struct error ignored;
    size_t len = 0;
    bool is_head = !hub_cache_resolve(folder, name, &ignored) &&
                   !checkpoint_read_config(&ck, path, &text, &len, &ignored) &&
                   head_config_is_head(text, len);
    free(text);
    return is_head;
}

const struct head_config *checkpoint_head(const struct checkpoint *ck)
{
    return ck->head;
}

const int32_t *checkpoint_head_ids(const struct checkpoint *ck)
{
    return ck->head_ids;
}

const uint16_t *checkpoint_head_mask(const struct checkpoint *ck)
{
    return ck->head_mask;
}

bool checkpoint_head_is_chosen(const struct checkpoint *ck)
{
    return ck->head && ck->head_ids && ck->head->logits_from == HEAD_LENT;
}

int checkpoint_demand_target(const struct checkpoint *ck, struct error *err)
{
    const struct head_config *head = ck->head;
    if (!head) return 0;
    bool is_embedding = head->embedding_from == HEAD_LACKING;
    if (!is_embedding && head->logits_from != HEAD_LACKING) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "%s has no %s, which it shares with its target, and no target was named",
                     ck->name, head->names[is_embedding ? HEAD_EMBEDDING : HEAD_LOGITS]);
}
