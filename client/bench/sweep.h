/* The arms of `outrider bench`, that is, every combination of the values of --sweep. */
#pragma once

#include "client/generate_options.h"

enum {
    SWEEP_FACTORS_MAX = 6,
    SWEEP_VALUES_MAX = 64,
    SWEEP_ARMS_MAX = 1024,
    SWEEP_NAME_BYTES = 24,
    SWEEP_VALUE_BYTES = 24,
    ARM_LABEL_BYTES = 96,
    ARM_CONCURRENCY_MAX = 256,
    ARM_RANKS_MAX = 64,
    ARM_GROUPS_MAX = 1024
};

/* A value of K beside numbers: strategy planned, and K as the coordinator limits it. */
#define SWEEP_PLAN "plan"

/* A name with its values. Names are K, T, C (streams at once), R (requests per second), the long
 * names of options of a request, and any others that the command of --start has in braces, such as
 * {groups}: those say what cluster is started, and nothing else. */
struct sweep_factor {
    char name[SWEEP_NAME_BYTES];
    int n;
    char values[SWEEP_VALUES_MAX][SWEEP_VALUE_BYTES];
    bool is_open; /* "..." was read: the next value says how far the series goes */
};

struct sweep {
    int n;
    struct sweep_factor factors[SWEEP_FACTORS_MAX];
};

/* One way to put load on the cluster. Immutable after sweep_arms. */
struct bench_arm {
    struct generate_options generate; /* the request without its prompt */
    int n_ranks;                      /* T of the cluster to start; 0 = as it is */
    int n_groups;                     /* that must serve before it begins; 0 = one */
    int concurrency;                  /* streams at once, closed loop */
    float rate_hz;                    /* > 0: open loop */
    char label[ARM_LABEL_BYTES];      /* "K=4 T=2"; "" without a sweep */
    char others[ARM_LABEL_BYTES];     /* the part of the label that is not K, T, C or R */
    char started[ARM_LABEL_BYTES];    /* the part that says which cluster is started, T included */
};

/* Adds factors: "K=0..8,T=1,2,4". In "1,2,4,...,64" the series goes on: by the same factor where
 * the last three values have one, otherwise by the same difference. Errors: ERR_ARGUMENT. */
int sweep_parse(struct sweep *sweep, const char *text, struct error *err);
bool sweep_has(const struct sweep *sweep, const char *name);

/* Makes all combinations, in a new array that the caller frees: what the command `start` (NULL:
 * none) has in braces changes slowest, K fastest, the rest in the order given. base has everything
 * that no factor sets. Errors: ERR_ARGUMENT a value is wrong, or there are too many arms;
 * ERR_NO_MEMORY. */
int sweep_arms(const struct sweep *sweep, const struct bench_arm *base, const char *start,
               struct bench_arm **arms, int *n_arms, struct error *err);

/* The arm that has K = 0 and is otherwise the same; NULL when there is none. */
const struct bench_arm *sweep_plain(const struct bench_arm *arms, int n_arms,
                                    const struct bench_arm *arm);
