/* The check that a head's tensors are numbers. Of a model this is found out by its texts, while a
 * head with damaged weights would only guess badly. */
#pragma once

#include "model/checkpoint/checkpoint.h"

/* Reads all tensors of the head once, but for an embedding and an lm_head that are its target's,
 * or that an MTP layer shares with the model in its folder. Errors: ERR_FORMAT an element is no
 * finite number in bf16; ERR_NO_MEMORY; those of checkpoint_find. */
int head_numbers_check(const struct checkpoint *ck, struct error *err);
