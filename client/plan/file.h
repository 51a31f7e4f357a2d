/* The file of `outrider plan --cluster`: JSON with what was measured and what is asked. A key that
 * is not known is refused, because a misspelt one would be a wrong answer. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "speculation/theory/cluster_model.h"

enum { PLAN_QUESTIONS_MAX = 256 };

struct plan_file {
    json_t *root;
    const char *name;          /* of the cluster; in root, like the assumptions */
    const json_t *assumptions; /* a list of strings, or NULL */
    struct cluster_costs costs;
    int k_most;
    int n_questions;
    struct cluster_question questions[PLAN_QUESTIONS_MAX];
    bool predicts_ranks[PLAN_QUESTIONS_MAX]; /* T is not that of the measured step */
};

/* Errors: ERR_IO, ERR_FORMAT with file, key and value. Closing a zeroed one is allowed. */
int plan_file_open(struct plan_file *file, const char *path, struct error *err);
void plan_file_close(struct plan_file *file);
