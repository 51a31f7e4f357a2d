/* The features of a target that a head is to be fed with. */
#pragma once

#include "model/checkpoint/head_readings.h"
#include "model/model.h"

/* Sets *wish to what `head`, a model of a head, reads of its target by this reading. Where the
 * target's workers hold the very fc of the head (`held` of their description is that of
 * model_projection), the wish is for projected rows, which are fed as recycled ones (struct
 * forward_features) with the same result; this is true then. */
bool head_wish(struct feature_wish *wish, const struct model *head,
               const struct head_reading *reading, const struct projection_key *held);
