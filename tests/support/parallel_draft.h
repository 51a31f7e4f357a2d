/* A parallel draft made of another model's folder: its config.json has a mask token, and the rest
 * is the other's. What such a model guesses from masks is as good as random, and that is enough to
 * see whether it is the right thing. */
#pragma once

#include <stdio.h>
#include <unistd.h>

#include "base/system/file.h"
#include "tests/support/drafter_world.h"

struct parallel_draft {
    char folder[40], config[64];
};

static const char *const parallel_draft_files[] = {
    "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"};
enum { PARALLEL_DRAFT_FILES = sizeof parallel_draft_files / sizeof *parallel_draft_files };

/* entries: of config.json, before those of the other model's. */
static inline struct parallel_draft make_parallel_draft(const char *like, const char *entries)
{
    struct parallel_draft made = {.folder = "/tmp/parallel_draft_XXXXXX"};
    struct error err;
    char path[256], target[256], *text = NULL;
    size_t len;
    ck_assert_ptr_nonnull(mkdtemp(made.folder));
    snprintf(path, sizeof path, "%s/config.json", like);
    CHECK_OK(file_read_text(&text, &len, path, 1 << 16, &err));
    snprintf(made.config, sizeof made.config, "%s/config.json", made.folder);
    FILE *file = fopen(made.config, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_gt(fprintf(file, "{%s,%s", entries, strchr(text, '{') + 1), 0);
    ck_assert_int_eq(fclose(file), 0);
    free(text);
    for (int i = 0; i < PARALLEL_DRAFT_FILES; i++) {
        snprintf(target, sizeof target, "%s/%s", like, parallel_draft_files[i]);
        snprintf(path, sizeof path, "%s/%s", made.folder, parallel_draft_files[i]);
        ck_assert_int_eq(symlink(target, path), 0);
    }
    return made;
}

static inline void remove_parallel_draft(const struct parallel_draft *made)
{
    char path[256];
    for (int i = 0; i < PARALLEL_DRAFT_FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", made->folder, parallel_draft_files[i]);
        unlink(path);
    }
    unlink(made->config);
    ck_assert_int_eq(rmdir(made->folder), 0);
}

/* As setup() of drafter_world.h, with such a draft of the tales pair. */
static inline void setup_parallel(struct bench *b, const char *entries, enum accept_rule rule,
                                  float temperature)
{
    struct parallel_draft made = make_parallel_draft(DRAFT, entries);
    const struct drafter_options options = {
        .name = made.folder,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = SLOTS,
        .support = 64,
        .kv_tokens = SLOTS * CAPACITY};
    setup_draft(b, &options);
    remove_parallel_draft(&made); /* what was read stays mapped */
    b->seq = place_text(b, 0, prompt, N_PROMPT);
    follow(b->seq, rule, temperature);
}
