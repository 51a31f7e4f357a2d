/* ctest: libs=model */
/* Loads the weights of one rank as outrider-worker does, alone, for
 * tests/cluster/test_model_reading.py, which sees which pages of the files that brings into memory.
 * Prints `weights=BYTES`, what the rank holds.
 *   prog_weights_read MODEL RANK N_RANKS */
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "comm/comm.h"
#include "model/backend/open.h"
#include "model/model.h"

static int load(const char *name, int rank, int n_ranks, size_t *bytes, struct error *err)
{
    struct comm *comms[RANKS_MAX] = {0};
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    const struct model_options options = {
        .n_kv_blocks = 2, .max_tokens = 16, .max_rows = 16, .max_lanes = 1};
    struct backend_options backend = {
        .device = "cpu", .kernels = "auto", .n_threads = 1, .rank = rank};
    int rc = 0;
    TRY(checkpoint_open(&ck, name, err));
    backend.stored = checkpoint_config(ck)->stored;
    TRY(comm_threads_open(comms, n_ranks, err));
    TRY(backend_open(&be, &backend, err));
    TRY(model_open(&model, ck, comms[rank], be, &options, err));
    *bytes = model_weight_bytes(model);
out:
    return rc; /* the process ends */
}

int main(int argc, char **argv)
{
    struct error err;
    size_t bytes = 0;
    if (argc != 4 || load(argv[1], atoi(argv[2]), atoi(argv[3]), &bytes, &err)) {
        fprintf(stderr, "prog_weights_read: %s\n", argc == 4 ? err.text : "MODEL RANK N_RANKS");
        return 1;
    }
    printf("weights=%zu\n", bytes);
    return 0;
}
