/* A target that applies the first matrix of a head (fc) to its features, so that one width leaves
 * it instead of several. It holds nothing else of the head. For the files of internal.h,
 * weights and checks of programs. Owned by the model's thread. */
#pragma once

#include "model/checkpoint/checkpoint.h"
#include "model/digest.h"
#include "model/fc.h"
#include "model/features.h"

/* Zeroed: the model has none. */
struct projection {
    struct fc fc;
    struct entry_weights weights; /* of fc and of the norms before it alone */
    struct projection_key key;
    float *rows; /* [capacity][D] */
    float norm_eps;
    size_t bytes; /* of fc, packed */
};

/* Opens the folder of a head that has an fc which reads features of `target`. Errors: those of
 * checkpoint_open_head and of projection_check. */
int projection_open_head(struct checkpoint **head, const char *name,
                         const struct checkpoint *target, struct error *err);

/* Checks that `head` has an fc that reads features of `target`. Errors: ERR_UNSUPPORTED,
 * ERR_FORMAT. */
int projection_check(const struct checkpoint *head, const struct checkpoint *target,
                     struct error *err);

/* Reads the weights. The head may have been opened without its target; keeps it. Errors: those of
 * projection_check and of weights_open. */
int projection_open(struct projection *p, const struct checkpoint *head,
                    const struct checkpoint *target, int max_tokens, struct backend *be,
                    struct error *err);
void projection_close(struct projection *p, struct backend *be);

/* The key of a head's fc: a hash of what its result depends on besides the features, which are its
 * tensors, how they are normed and how many there are. digests: of the head's tensors, those of the
 * fc among them. Digest 0: the head has no fc. */
struct projection_key projection_key_of(const struct checkpoint *head,
                                        struct digest_table *digests);

/* Checks that a wish can be fulfilled. Errors: ERR_ARGUMENT. */
int projection_check_wish(const struct projection *p, const struct feature_wish *wish,
                          struct error *err);

/* Fills the projected rows of `kept` from its columns, which n rows of a step have. */
void projection_forward(const struct projection *p, struct backend *be,
                        const struct kept_features *kept, int n);
