/* The features that a step's lanes want: which rows of the step they are, and their copy for the
 * reply, which rank 0 alone makes. All ranks refuse the same lanes. Owned by the engine thread. */
#pragma once

#include "model/model.h"
#include "proto/target_wire.h"

/* A lane's rows, counted over the tokens of the step's accepted lanes. */
struct feature_rows {
    int first, n;
};

struct step_features {
    struct feature_rows *lanes;    /* [n_slots] those lanes that want some */
    struct lane_features *answers; /* [n_slots] */
    int n, n_rows;                 /* lanes, and their rows */
    char error_text[ERROR_TEXT_BYTES];
};

/* Errors: ERR_NO_MEMORY. */
int step_features_open(struct step_features *features, int n_slots, struct error *err);
void step_features_close(struct step_features *features);

/* A step begins. */
void step_features_begin(struct step_features *features);

/* True if the lane wants nothing, or rows and boundaries that exist and for which the reply still
 * has room. False: `why` [ERROR_TEXT_BYTES] has the sentence. */
bool step_features_check(const struct step_features *features, const struct feature_wish *wish,
                         const struct step_lane *lane, const struct model_config *cfg, char *why);
/* Enters a lane that was checked, whose tokens are rows first_row and on. */
void step_features_take(struct step_features *features, const struct step_lane *lane,
                        int first_row);

/* Before the forward pass: rank 0 keeps what is wanted. Without memory for it, or without the head
 * whose projection is wanted, the step is computed all the same, because the other ranks compute
 * it, and the reply says why there are none. */
void step_features_keep(struct step_features *features, const struct feature_wish *wish,
                        struct model *model);
/* After it: rank 0 copies them to arena and sets those of the reply, with their time. Errors:
 * ERR_UNAVAILABLE the device is lost. */
int step_features_answer(struct step_features *features, const struct feature_wish *wish,
                         struct model *model, struct arena *arena, struct step_reply *reply,
                         struct error *err);
