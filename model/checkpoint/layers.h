/* Some layers of a model as a model of its own: "MODEL,layers=0-3,12-15". Early exit leaves out the
 * last layers (LayerSkip, arXiv 2404.16710), layer skipping any of them (Draft & Verify, arXiv
 * 2309.08168). Embedding, final norm and head are the model's.
 *
 * The list is what follows the last ",layers=" of a name, unless there is a "/" in it. In the name
 * of a synthetic model layers=L, one number from 1 on, is the number of its layers: a single layer
 * is then written L-L, or after such a number: "synthetic:tiny,seed=1,layers=6,layers=2". */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* The list of a name, without ",layers="; NULL: it has none. *model_len is set to the length of the
 * name before it. */
const char *layers_split(const char *name, size_t *model_len);

/* A copy of the name without a list of layers, which the caller frees. Errors: ERR_NO_MEMORY. */
int layers_strip(char **model, const char *name, struct error *err);

/* Reads a list such as "0-3,12-15", or "all", for a model of n_layers, named `model` in errors.
 * (*layers)[*n] ascend; the caller frees them. Errors: ERR_ARGUMENT says which part of the list is
 * wrong and how many layers there are; ERR_NO_MEMORY. */
int layers_parse(int **layers, int *n, const char *list, const char *model, int n_layers,
                 struct error *err);

/* Writes a list of layers[n], which ascend, into text, cut where its room ends. It means the same
 * after every name: a single layer but 0 is written as 5-5. */
void layers_format(const int *layers, int n, char *text, size_t text_bytes);
