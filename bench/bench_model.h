/* A model that a benchmark computes with, in this process and on one rank. */
#pragma once

#include "comm/comm.h"
#include "model/backend/open.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model.h"

struct bench_model {
    struct checkpoint *ck; /* set by the caller */
    struct backend *be;
    struct model *model;
};

/* Opens the model of m->ck. bench_model_close releases what was opened, also after an error. */
static inline int bench_model_open(struct bench_model *m, const struct backend_options *backend,
                                   const struct model_options *options, struct error *err)
{
    int rc = 0;
    struct backend_options stored = *backend;
    stored.stored = checkpoint_config(m->ck)->stored;
    TRY(backend_open(&m->be, &stored, err));
    TRY(model_open(&m->model, m->ck, comm_single(), m->be, options, err));
out:
    return rc;
}

static inline void bench_model_close(struct bench_model *m)
{
    model_close(m->model);
    if (m->be) m->be->ops->close(m->be);
    checkpoint_close(m->ck);
}
