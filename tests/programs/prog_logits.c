/* ctest: libs=worker */
/* One rank of tests/cluster/test_forward_mpi.sh: feeds fixed tokens to a model in every way it
 * knows, under mpirun with any number of ranks, and prints a hash of each of its vocabulary slices'
 * logits over all positions: `threads=1 chunk=7 slice=3 hash=...`. The hash must depend on nothing
 * but the model, the tokens and the slice.
 *   prog_logits MODEL N_TOKENS [other]   other: the last token is another one */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/limits.h"
#include "base/rng.h"
#include "base/text/options.h"
#include "comm/comm_mpi.h"
#include "model/backend/cpu/cpu.h"
#include "model/logits/row.h"
#include "model/model.h"

enum { TOKENS_MAX = 1024, TOKENS_SEED = 20240611, LINE_BYTES = 160 };

struct run {
    struct checkpoint *ck;
    struct comm *comm;
    int32_t tokens[TOKENS_MAX], blocks[TOKENS_MAX / KV_BLOCK_TOKENS + 1];
    int n_tokens, n_blocks;
    XXH3_state_t *hashes[SLICES_MAX]; /* of the local slices */
};

/* One table entry per block, in no natural order. */
static void fill(struct run *run, int n_vocab, bool is_other)
{
    struct rng_address at = {.seed = TOKENS_SEED};
    for (int i = 0; i < run->n_tokens; i++) {
        at.position = (uint32_t)i;
        run->tokens[i] = (int32_t)(rng_uniform(&at, RNG_WEIGHT, 0) * n_vocab);
    }
    if (is_other) run->tokens[run->n_tokens - 1] ^= 1;
    run->n_blocks = (run->n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (int i = 0; i < run->n_blocks; i++) {
        run->blocks[i] = run->n_blocks - 1 - i;
    }
}

static int take_rows(struct run *run, struct model *model, int n_rows, struct error *err)
{
    const struct shard *shard = model_shard(model);
    for (int row = 0; row < n_rows; row++) {
        const float *logits = model_logits(model, row);
        for (int s = 0; s < shard->n_local; s++) {
            int32_t first_id;
            int n_cols;
            row_slice_range(shard->n_vocab, shard->n_slices, shard->first_slice + s, &first_id,
                            &n_cols);
            const float *slice = logits + (size_t)s * (size_t)shard->vocab_slice;
            for (int i = 0; i < n_cols; i++) {
                if (!isfinite(slice[i])) return error_set(err, ERR_FORMAT, "a logit is not finite");
            }
            XXH3_64bits_update(run->hashes[s], slice, (size_t)n_cols * sizeof *slice);
        }
    }
    return 0;
}

static int feed(struct run *run, struct model *model, int chunk, struct error *err)
{
    static struct forward_row rows[TOKENS_MAX];
    int rc = 0;
    for (int s = 0; s < model_shard(model)->n_local; s++) {
        XXH3_64bits_reset(run->hashes[s]);
    }
    for (int first = 0; first < run->n_tokens; first += chunk) {
        int n = run->n_tokens - first < chunk ? run->n_tokens - first : chunk;
        const struct forward_lane lane = {first, n, run->tokens + first, run->blocks, NULL};
        for (int i = 0; i < n; i++) {
            rows[i] = (struct forward_row){0, i};
        }
        TRY(model_forward(model, &lane, 1, rows, n, err));
        TRY(take_rows(run, model, n, err));
    }
out:
    return rc;
}

/* A line at a time, so that the lines of several ranks do not mix. */
static void print_hashes(const struct run *run, const struct shard *shard, int n_threads, int chunk)
{
    for (int s = 0; s < shard->n_local; s++) {
        char line[LINE_BYTES];
        snprintf(line, sizeof line, "threads=%d chunk=%d slice=%d hash=%016" PRIx64 "\n", n_threads,
                 chunk, shard->first_slice + s, (uint64_t)XXH3_64bits_digest(run->hashes[s]));
        fputs(line, stdout);
        fflush(stdout);
    }
}

static int run_threads(struct run *run, int n_threads, struct error *err)
{
    const int chunks[] = {1, 7, 64, run->n_tokens};
    const struct backend_cpu_options cpu = {"auto", n_threads, WEIGHTS_BF16};
    const struct model_options options = {.n_kv_blocks = run->n_blocks,
                                          .max_tokens = run->n_tokens,
                                          .max_rows = run->n_tokens,
                                          .max_lanes = 1};
    struct backend *backend = NULL;
    struct model *model = NULL;
    int rc = 0;
    TRY(backend_cpu_open(&backend, &cpu, err));
    TRY(model_open(&model, run->ck, run->comm, backend, &options, err));
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        TRY(feed(run, model, chunks[i], err));
        print_hashes(run, model_shard(model), n_threads, chunks[i]);
    }
out:
    model_close(model);
    if (backend) backend->ops->close(backend);
    return rc;
}

static int open_run(struct run *run, int argc, char **argv, struct error *err)
{
    int rc = 0;
    if (argc < 3) return error_set(err, ERR_ARGUMENT, "usage: prog_logits MODEL N_TOKENS [other]");
    TRY(options_int(&run->n_tokens, "N_TOKENS", argv[2], 1, TOKENS_MAX, err));
    TRY(checkpoint_open(&run->ck, argv[1], err));
    fill(run, checkpoint_config(run->ck)->vocab_size, argc > 3 && strcmp(argv[3], "other") == 0);
    for (int s = 0; s < SLICES_MAX; s++) {
        run->hashes[s] = XXH3_createState();
        if (!run->hashes[s]) return error_set(err, ERR_NO_MEMORY, "no memory for hashes");
    }
    TRY(comm_mpi_open(&run->comm, err));
out:
    return rc;
}

int main(int argc, char **argv)
{
    static struct run run;
    struct error err;
    int rc = open_run(&run, argc, argv, &err);
    for (int n_threads = 1; !rc && n_threads <= 2; n_threads++) {
        rc = run_threads(&run, n_threads, &err);
    }
    if (rc) {
        fprintf(stderr, "prog_logits: %s\n", err.text);
        if (run.comm) comm_abort(run.comm, 1); /* the others wait in a collective */
    }
    comm_close(run.comm);
    checkpoint_close(run.ck);
    for (int s = 0; s < SLICES_MAX; s++) {
        XXH3_freeState(run.hashes[s]);
    }
    return rc ? 1 : 0;
}
