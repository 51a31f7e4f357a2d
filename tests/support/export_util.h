/* A folder to export to, and the logits of what is in it. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/export/export.h"
#include "tests/support/forward_util.h"

#define GOLDEN SOURCE_DIR "/tests/golden/models"
#define TALES  SOURCE_DIR "/deploy/models/tales/"

enum { PATH_BYTES = 1024, N_TOKENS = 40 };

static struct error err;
static char work[PATH_BYTES];

/* Removes a folder of plain files. */
static inline void remove_folder(const char *path)
{
    char file[PATH_BYTES + 300];
    const struct dirent *entry;
    DIR *dir = opendir(path);
    if (!dir) return;
    while ((entry = readdir(dir))) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        unlink(file);
    }
    closedir(dir);
    rmdir(path);
}

static inline void make_work(void)
{
    snprintf(work, sizeof work, "/tmp/outrider-export-%d", (int)getpid());
    remove_folder(work);
}

static inline void remove_work(void)
{
    remove_folder(work);
}

/* The logits of N_TOKENS fixed tokens; the caller frees them. */
static inline float *logits_of(const char *model, int n_ranks, size_t *n)
{
    struct rig rig;
    int32_t tokens[N_TOKENS], blocks[RIG_BLOCKS];
    rig_open(&rig, model, n_ranks, "auto", 1);
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (int32_t)((unsigned)i * 2654435761u % (unsigned)rig.n_vocab);
    }
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = i;
    }
    *n = (size_t)N_TOKENS * (size_t)rig.n_vocab;
    float *logits = malloc(*n * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    rig_logits(&rig, tokens, N_TOKENS, N_TOKENS, blocks, logits);
    rig_close(&rig);
    return logits;
}
