/* Parses --sweep and makes its arms. Values stay text until they are set in an arm, because each
 * option parses its own values. */
#include "client/bench/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"

static const float rate_most_hz = 1e5f;

static int add_value(struct sweep_factor *factor, const char *text, struct error *err)
{
    if (factor->n == SWEEP_VALUES_MAX) {
        return error_set(err, ERR_ARGUMENT, "--sweep: %s has more than %d values", factor->name,
                         SWEEP_VALUES_MAX);
    }
    if (!text[0] || strlen(text) >= SWEEP_VALUE_BYTES) {
        return error_set(err, ERR_ARGUMENT, "--sweep: '%.40s' is no value of %s", text,
                         factor->name);
    }
    snprintf(factor->values[factor->n++], SWEEP_VALUE_BYTES, "%s", text);
    return 0;
}

/* A value, or whole numbers FIRST..LAST. */
static int add_values(struct sweep_factor *factor, char *text, struct error *err)
{
    char *dots = strstr(text, "..");
    int first = 0, last = 0, rc = 0;
    if (!dots) return add_value(factor, text, err);
    *dots = '\0';
    TRY(options_int(&first, "--sweep", text, 0, 1 << 20, err));
    TRY(options_int(&last, "--sweep", dots + 2, first, 1 << 20, err));
    for (int i = first; i <= last; i++) {
        char number[SWEEP_VALUE_BYTES];
        snprintf(number, sizeof number, "%d", i);
        TRY(add_value(factor, number, err));
    }
out:
    return rc;
}

static int begin_factor(struct sweep *sweep, const char *name, struct error *err)
{
    struct sweep_factor *factor = &sweep->factors[sweep->n];
    if (sweep->n == SWEEP_FACTORS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--sweep: more than %d names", SWEEP_FACTORS_MAX);
    }
    if (!name[0] || strlen(name) >= SWEEP_NAME_BYTES) {
        return error_set(err, ERR_ARGUMENT, "--sweep: '%.40s' is no name", name);
    }
    if (sweep_has(sweep, name)) {
        return error_set(err, ERR_ARGUMENT, "--sweep: %s is named twice", name);
    }
    *factor = (struct sweep_factor){0};
    snprintf(factor->name, sizeof factor->name, "%s", name);
    sweep->n++;
    return 0;
}

static int add_piece(struct sweep *sweep, char *piece, struct error *err)
{
    char *equals = strchr(piece, '=');
    if (equals) {
        *equals = '\0';
        int rc = begin_factor(sweep, piece, err);
        if (rc) return rc;
        piece = equals + 1;
    }
    if (sweep->n == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "--sweep: '%.40s': expected NAME=VALUES, such as "
                         "K=0..8,T=1,2,4",
                         piece);
    }
    return add_values(&sweep->factors[sweep->n - 1], piece, err);
}

int sweep_parse(struct sweep *sweep, const char *text, struct error *err)
{
    char *copy = NULL;
    size_t len = strlen(text);
    int rc = mem_array(&copy, len + 1, 1, err);
    if (rc) return rc;
    memcpy(copy, text, len + 1);
    for (char *at = copy, *next; at && !rc; at = next) {
        next = strchr(at, ',');
        if (next) *next++ = '\0';
        rc = add_piece(sweep, at, err);
    }
    free(copy);
    return rc;
}

static const struct sweep_factor *find(const struct sweep *sweep, const char *name)
{
    for (int i = 0; i < sweep->n; i++) {
        if (strcmp(sweep->factors[i].name, name) == 0) return &sweep->factors[i];
    }
    return NULL;
}

bool sweep_has(const struct sweep *sweep, const char *name)
{
    return find(sweep, name) != NULL;
}

/* ---- arms ---- */

static void add_word(char text[ARM_LABEL_BYTES], const char *name, const char *value)
{
    size_t len = strlen(text);
    snprintf(text + len, ARM_LABEL_BYTES - len, "%s%s=%s", len ? " " : "", name, value);
}

static int apply(struct bench_arm *arm, const char *name, const char *value, struct error *err)
{
    add_word(arm->label, name, value);
    if (strcmp(name, "T") == 0) {
        return options_int(&arm->n_ranks, "--sweep T", value, 1, ARM_RANKS_MAX, err);
    }
    if (strcmp(name, "C") == 0) {
        return options_int(&arm->concurrency, "--sweep C", value, 1, ARM_CONCURRENCY_MAX, err);
    }
    if (strcmp(name, "R") == 0) {
        return options_float(&arm->rate_hz, "--sweep R", value, 1e-4f, rate_most_hz, err);
    }
    if (strcmp(name, "K") != 0) add_word(arm->others, name, value);
    int rc = generate_options_set(&arm->generate, name, value, err);
    return rc ? error_wrap(err, "--sweep %s", name) : 0;
}

/* T first, K last. */
static void order_factors(const struct sweep *sweep, const struct sweep_factor **ordered)
{
    const struct sweep_factor *t = find(sweep, "T"), *k = find(sweep, "K");
    int n = 0;
    if (t) ordered[n++] = t;
    for (int i = 0; i < sweep->n; i++) {
        const struct sweep_factor *factor = &sweep->factors[i];
        if (factor != t && factor != k) ordered[n++] = factor;
    }
    if (k) ordered[n++] = k;
}

static int set_arm(struct bench_arm *arm, const struct bench_arm *base, const struct sweep *sweep,
                   int index, struct error *err)
{
    const struct sweep_factor *ordered[SWEEP_FACTORS_MAX];
    const char *values[SWEEP_FACTORS_MAX];
    int rc = 0;
    order_factors(sweep, ordered);
    *arm = *base;
    arm->generate.request.stop = arm->generate.stops; /* not those of base */
    for (int f = sweep->n - 1; f >= 0; f--) {
        values[f] = ordered[f]->values[index % ordered[f]->n];
        index /= ordered[f]->n;
    }
    for (int f = 0; f < sweep->n; f++) {
        TRY(apply(arm, ordered[f]->name, values[f], err));
    }
    TRY(generate_options_check(&arm->generate, err));
out:
    return rc;
}

int sweep_arms(const struct sweep *sweep, const struct bench_arm *base, struct bench_arm **arms,
               int *n_arms, struct error *err)
{
    int rc = 0, n = 1;
    *arms = NULL;
    for (int f = 0; f < sweep->n; f++) {
        n *= sweep->factors[f].n;
        if (n > SWEEP_ARMS_MAX) {
            return error_set(err, ERR_ARGUMENT, "--sweep has more than %d combinations",
                             SWEEP_ARMS_MAX);
        }
    }
    TRY(mem_array(arms, (size_t)n, sizeof **arms, err));
    for (int i = 0; i < n; i++) {
        TRY(set_arm(&(*arms)[i], base, sweep, i, err));
    }
    *n_arms = n;
out:
    if (rc) {
        free(*arms);
        *arms = NULL;
    }
    return rc;
}

const struct bench_arm *sweep_plain(const struct bench_arm *arms, int n_arms,
                                    const struct bench_arm *arm)
{
    for (int i = 0; i < n_arms; i++) {
        const struct bench_arm *other = &arms[i];
        bool is_same = other->n_ranks == arm->n_ranks && other->concurrency == arm->concurrency &&
                       other->rate_hz <= arm->rate_hz && other->rate_hz >= arm->rate_hz &&
                       strcmp(other->others, arm->others) == 0;
        if (is_same && other->generate.request.n_draft == 0) return other;
    }
    return NULL;
}
