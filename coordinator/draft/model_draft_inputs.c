/* Features that a draft model reads. */
#include "coordinator/draft/model_draft_inputs.h"

#include <stdlib.h>
#include <string.h>

int draft_inputs_open(struct draft_inputs **inputs, const struct head_reading *reading,
                      int feature_dim, int dim, int n_sequences, struct error *err)
{
    int rc = 0;
    struct draft_inputs *in = NULL;
    size_t n = (size_t)n_sequences, nodes = n * DRAFT_INPUTS_ROWS * (size_t)dim;
    *inputs = NULL;
    TRY(mem_array(&in, 1, sizeof *in, err));
    struct feature_wish wish = {.n = reading->n, .normed = reading->normed};
    memcpy(wish.boundaries, reading->boundaries, sizeof reading->boundaries);
    in->reading = *reading;
    in->feature_dim = feature_dim;
    in->dim = dim;
    in->n_sequences = n_sequences;
    TRY(mem_array(&in->runs, n, sizeof *in->runs, err));
    draft_inputs_set_wish(in, &wish);
    TRY(mem_array(&in->outputs, nodes, sizeof *in->outputs, err));
    TRY(mem_array(&in->gathered, nodes, sizeof *in->gathered, err));
    TRY(mem_array(&in->features, n, sizeof *in->features, err));
    *inputs = in;
    in = NULL;
out:
    draft_inputs_close(in);
    return rc;
}

void draft_inputs_close(struct draft_inputs *in)
{
    if (!in) return;
    for (int i = 0; in->runs && i < in->n_sequences; i++) {
        free(in->runs[i].rows);
    }
    free(in->runs);
    free(in->outputs);
    free(in->gathered);
    free(in->features);
    free(in);
}

void draft_inputs_set_wish(struct draft_inputs *in, const struct feature_wish *wish)
{
    for (int i = 0; i < in->n_sequences; i++) {
        draft_inputs_forget(in, i);
    }
    in->wish = *wish;
    in->width = (int)feature_wish_width(wish, in->feature_dim);
}

static size_t row_bytes(const struct draft_inputs *in)
{
    return (size_t)in->width * sizeof(uint16_t);
}

static uint16_t *row_of(const struct draft_inputs *in, const struct feature_run *run, int i)
{
    return run->rows + (size_t)i * (size_t)in->width;
}

/* Drops the rows of positions before `first`. */
static void drop(const struct draft_inputs *in, struct feature_run *run, int first)
{
    int n = first - run->first;
    if (n <= 0) return;
    if (n > run->n) n = run->n;
    if (n == 0) return;
    memmove(run->rows, row_of(in, run, n), (size_t)(run->n - n) * row_bytes(in));
    run->first += n;
    run->n -= n;
}

static int grow(const struct draft_inputs *in, struct feature_run *run, int n, struct error *err)
{
    int capacity = run->capacity ? run->capacity : 16;
    while (capacity < n) {
        capacity *= 2;
    }
    if (capacity == run->capacity) return 0;
    uint16_t *rows = realloc(run->rows, (size_t)capacity * row_bytes(in));
    if (!rows) return error_set(err, ERR_NO_MEMORY, "no memory for the features of %d tokens", n);
    run->rows = rows;
    run->capacity = capacity;
    return 0;
}

int draft_inputs_keep(struct draft_inputs *in, int slot, const struct draft_features *features,
                      int needed, struct error *err)
{
    struct feature_run *run = &in->runs[slot];
    int kept = needed > 0 ? needed - 1 : 0, rc = 0;
    int skipped = features->first < kept ? kept - features->first : 0;
    drop(in, run, kept);
    if (skipped >= features->n) return 0;
    int first = features->first + skipped, n = features->n - skipped;
    if (run->n == 0) run->first = first;
    int at = first - run->first;
    if (at < 0 || at > run->n || run->first > needed) {
        return error_set(err, ERR_INTERNAL, "the features of position %d came, but not those of %d",
                         first, run->n ? run->first + run->n : needed);
    }
    TRY(grow(in, run, at + n, err));
    memcpy(row_of(in, run, at), features->rows + (size_t)skipped * (size_t)in->width,
           (size_t)n * row_bytes(in));
    run->n = at + n;
out:
    return rc;
}

int draft_inputs_add_masks(struct draft_inputs *in, int slot, const uint16_t *mask, int n,
                           struct error *err)
{
    struct feature_run *run = &in->runs[slot];
    int rc = 0;
    TRY(grow(in, run, run->n + n, err));
    for (int i = 0; i < n; i++) {
        memcpy(row_of(in, run, run->n + i), mask, row_bytes(in));
    }
out:
    return rc;
}

void draft_inputs_forget(struct draft_inputs *in, int slot)
{
    free(in->runs[slot].rows);
    in->runs[slot] = (struct feature_run){0};
}

bool draft_inputs_have(const struct draft_inputs *in, int slot, int first, int end)
{
    const struct feature_run *run = &in->runs[slot];
    return first >= end || (first >= run->first && end <= run->first + run->n);
}

int draft_inputs_end(const struct draft_inputs *in, int slot)
{
    const struct feature_run *run = &in->runs[slot];
    return run->n ? run->first + run->n : 0;
}

const uint16_t *draft_inputs_rows(const struct draft_inputs *in, int slot, int first)
{
    const struct feature_run *run = &in->runs[slot];
    return row_of(in, run, first - run->first);
}

uint16_t *draft_inputs_output(const struct draft_inputs *in, int slot, int node)
{
    return in->outputs + ((size_t)slot * DRAFT_INPUTS_ROWS + (size_t)(1 + node)) * (size_t)in->dim;
}

uint16_t *draft_inputs_gathered(const struct draft_inputs *in, int lane)
{
    return in->gathered + (size_t)lane * DRAFT_INPUTS_ROWS * (size_t)in->dim;
}
