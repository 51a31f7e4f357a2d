/* The folder that a rank's --head names: a head, whose fc it applies to features
 * (model/projection.h), or look-ahead embeddings (model/look_ahead.h). */
#pragma once

#include "model/look_ahead.h"

struct held_head {
    struct checkpoint *head;      /* NULL: it is no head */
    struct look_ahead look_ahead; /* zeroed: they are no look-ahead embeddings */
};

/* name: a folder or ORG/NAME. Errors: those of projection_open_head, of look_ahead_open and of
 * look_ahead_check_target. */
int held_head_open(struct held_head *held, const char *name, const struct checkpoint *target,
                   struct error *err);
/* Accepts one that is zeroed. */
void held_head_close(struct held_head *held);
