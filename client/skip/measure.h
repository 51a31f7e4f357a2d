/* Measures how well a set of a model's layers serves as its draft, with the model in this process:
 * alpha over the positions of a text, and times of passes. The weights are loaded once; a set uses
 * those of the whole (`like` in model/model.h). Owned by one thread. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "model/backend/open.h"

struct skip_measure;

struct skip_measure_options {
    const char *model; /* a folder or a synthetic name, without a list of layers */
    struct backend_options backend;
    const int32_t *tokens; /* [n_tokens] the text; kept */
    int n_tokens;
    int n_vocab;       /* ids that exist; 0: as many as the model has */
    float temperature; /* 0: alpha is how often both have the same best token */
};

struct skip_set_cost {
    double alpha;   /* mean over the text of sum over x of min(p, q), q the 64 best of the set */
    double pass_us; /* of one token; layers are of one size, so it is measured once for each number
                       of layers */
};

/* Loads the model, reads the text with it and measures its steps. Errors: those of opening a model,
 * ERR_ARGUMENT. */
int skip_measure_open(struct skip_measure **measure, const struct skip_measure_options *options,
                      struct error *err);
void skip_measure_close(struct skip_measure *measure);

int skip_measure_layers(const struct skip_measure *measure); /* that the model has */
/* Time of a step of one row, and what each further row adds, of the whole model. */
double skip_measure_step_us(const struct skip_measure *measure);
double skip_measure_row_us(const struct skip_measure *measure);

/* layers[n] ascend. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE the device is lost. */
int skip_measure_set(struct skip_measure *measure, const int *layers, int n,
                     struct skip_set_cost *cost, struct error *err);
