/* Embeddings of a step's rows, as all backends read them in host memory. */
#include <string.h>

#include "model/backend/backend.h"

void backend_step_embed(const struct backend_step *step, int row, float *out)
{
    int32_t token = step->tokens[row];
    int n = step->embedding->n_cols;
    if (token == STEP_NO_TOKEN) {
        memset(out, 0, (size_t)n * sizeof *out);
    } else if (step->look_ahead && token >= step->look_ahead_first) {
        weight_read_f32(step->look_ahead, token - step->look_ahead_first, 0, n, out);
    } else {
        weight_read_f32(step->embedding, token, 0, n, out);
    }
}
