/* Properties of a model that follow from its family alone, and the keys in which the families
 * differ: scales, softcaps, the gate's function. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/family.h"

/* Sets what follows from the family and the dimensions alone, which are set. */
void config_family_apply(struct model_config *cfg, const struct model_family *family);

/* Reads the keys of the family; what they say about layers goes to *kind. The dimensions are set.
 * Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_family_read(struct model_config *cfg, struct layer_kind *kind, const json_t *root,
                       const struct model_family *family, const char *origin, struct error *err);
