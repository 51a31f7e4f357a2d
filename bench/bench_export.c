/* Writes a model as a Hugging Face folder, as `outrider export` does. bench/compare_transformers.py
 * uses it on a GPU machine, where the client cannot be built because there is no gRPC.
 *
 *   bench_export MODEL DIR */
#include <stdio.h>

#include "model/export/export.h"

int main(int argc, char **argv)
{
    const struct export_options options = {.shard_bytes = (uint64_t)4 << 30};
    struct export_result result;
    struct error err;
    if (argc != 3) {
        fprintf(stderr, "usage: bench_export MODEL DIR\n");
        return 2;
    }
    if (model_export(argv[1], argv[2], &options, &result, &err)) {
        fprintf(stderr, "bench_export: %s\n", err.text);
        return 1;
    }
    return 0;
}
