/* The contents of a head's config.json. A head is a drafter that reads features of a target: rows
 * of its residual stream. Published heads are EAGLE-3 in two layouts (a flat config of a Llama, or
 * speculators' with "transformer_layer_config"), EAGLE-1 and 2, the MTP layers that some models
 * have after their own, and the block drafters DFlash and DSpark (head_block.h).
 *
 * A boundary b of a target with L layers is its residual stream before layer b, or after the last
 * layer for b = L; the normed feature is what its lm_head reads. Row i of a head has the feature of
 * position i, the token at i + 1 and rope position i, and its logits are of the token at i + 2.
 *
 * All that differs between the formats is data here (struct head_entry), so that the forward pass
 * knows no format. Letters: A features of width Ht, D the head's own width.
 *
 * Medusa heads and those of blockwise parallel decoding have neither layers nor KV: from the normed
 * feature of position i alone they guess several places at once, place j being the token at
 * i + 2 + j (struct head_places). */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/config/head_block.h"
#include "model/checkpoint/config/head_ids.h"
#include "model/checkpoint/config/places_config.h"

enum { HEAD_NAME_BYTES = 64 };

enum head_format { HEAD_EAGLE3, HEAD_EAGLE1, HEAD_MTP, HEAD_MEDUSA, HEAD_BLOCKWISE, HEAD_BLOCK };

/* RMSNorms of the target's features: none, one over all of them, or one of each. */
enum feature_norms { FEATURES_PLAIN, FEATURES_NORMED_WHOLE, FEATURES_NORMED_APART };

/* How a row becomes the input of the first layer:
 *   u = the target's features, normed by `norms`; f = has_fc ? fc u + bias : u
 *   f = the head's own output, where the row has that in place of features
 *   a = concat(e, f), or concat(f, e) with feature_first; the embedding e and f are normed with
 *       norms_token and norms_feature
 * With has_join the residual stream is x = join a + bias, and the first layer norms it if
 * norms_input. Without, a of width 2D is the input of the first layer's q, k and v, and the
 * residual stream is f, or normed f with keeps_normed. */
struct head_entry {
    int n_features, feature_dim; /* A, Ht */
    enum feature_norms norms;
    bool has_fc, has_fc_bias;
    bool norms_token, norms_feature;
    bool feature_first;
    bool lacks_first; /* e is zero at position 0, whatever the token */
    bool keeps_normed;
    bool has_join, has_join_bias, norms_input;
};

/* Tensors of a head outside of its layers, but for the norms of single features. */
enum head_tensor {
    HEAD_EMBEDDING,
    HEAD_FC,
    HEAD_FC_BIAS,
    HEAD_FEATURES_NORM, /* of all features at once */
    HEAD_TOKEN_NORM,
    HEAD_FEATURE_NORM,
    HEAD_JOIN,
    HEAD_JOIN_BIAS,
    HEAD_FINAL_NORM,
    HEAD_LOGITS,
    HEAD_CHAIN_FIRST,  /* [V][r] w1 */
    HEAD_CHAIN_SECOND, /* [n_columns][r] w2 */
    HEAD_CONFIDENCE,
    HEAD_CONFIDENCE_BIAS,
    HEAD_TENSORS
};

/* Whose embedding, or lm_head, a head has. */
enum head_source {
    HEAD_OWN,
    HEAD_LENT,    /* by the target */
    HEAD_LACKING, /* to be lent by a target that is not known */
    HEAD_UNUSED   /* nobody's: the head reads no tokens, or each place has its own lm_head */
};

/* The place of the ids of layers in the file, which decides what they mean (head_readings). */
enum head_ids_from {
    HEAD_IDS_MISSING,
    HEAD_IDS_AT_TOP,
    HEAD_IDS_IN_EAGLE_CONFIG,
    HEAD_IDS_OF_OUTPUTS /* "target_layer_ids" */
};

/* A property that some files do not say and that a caller may decide; zero: as the file says. */
enum head_choice { HEAD_AS_STORED, HEAD_NO, HEAD_YES };

struct head_config {
    enum head_format format;
    bool is_speculators; /* the layout of config.json */
    struct head_entry entry;
    struct head_block block;
    struct head_places places; /* then entry has n_features, which is 1, and feature_dim alone */
    bool has_final_norm;       /* before lm_head */
    bool recycles_normed;      /* the output that later rows read is taken after the final norm */
    bool reads_normed;         /* the feature is the target's normed one, not that of a boundary */
    enum head_source embedding_from, logits_from;
    int n_columns;     /* of lm_head: cfg.vocab_size, or those of a reduced vocabulary; 0: those of
                          a target that is not known */
    int mask_token_id; /* of P-EAGLE's further rows, and of a block's; -1: none */

    enum head_ids_from ids_from;
    int n_ids, ids[HEAD_FEATURES_MAX]; /* as they are written, ascending */

    /* Names as the files have them. Those of layer i begin with first_layer for i = 0, otherwise
     * with layers and "i.". */
    char names[HEAD_TENSORS][HEAD_NAME_BYTES];
    char feature_norms[HEAD_FEATURES_MAX][HEAD_NAME_BYTES];
    char first_layer[HEAD_NAME_BYTES / 2], layers[HEAD_NAME_BYTES / 2];
};

/* The statements of the file which its tensors have to agree with; 0: it does not say. */
struct head_claims {
    int target_dim, n_features, n_columns;
    struct places_claims places;
    bool has_fc_norms, has_features_norm;
    bool is_single; /* "use_aux_hidden_state" is false */
    enum head_choice norm_before_residual, norm_output;
};

/* Reads a head's config.json: *cfg becomes that of its layers, as of a model of their own, or, of a
 * head of places, one without layers, whose width and vocabulary only the tensors tell; of *head
 * the format is set (HEAD_EAGLE3 for every kind of EAGLE, because only the tensors tell which), and
 * what does not depend on the tensors. Errors: ERR_FORMAT; ERR_UNSUPPORTED names what the head is,
 * or the key and its value. */
int head_config_parse(struct head_config *head, struct head_claims *claims,
                      struct model_config *cfg, struct config_rest *rest, const char *text,
                      size_t len, const char *origin, struct error *err);

/* True if the text is of a head, also of one that is not supported; false for an ordinary model, an
 * EAGLE-1 head, which looks like one, and for what is no JSON. */
bool head_config_is_head(const char *text, size_t len);

/* The beginning of the names of a layer's tensors; returns text. */
const char *head_layer_name(const struct head_config *head, int layer, char text[HEAD_NAME_BYTES]);

/* True if the first layer reads the embedding and the feature side by side, of width 2 D. head may
 * be NULL. */
bool head_feeds_joined(const struct head_config *head);

/* True if rows see no later ones of their block in a layer with this window (0: none). head may be
 * NULL. */
bool head_is_causal(const struct head_config *head, int window);

/* "EAGLE-3" and so on. */
const char *head_format_name(const struct head_config *head);
