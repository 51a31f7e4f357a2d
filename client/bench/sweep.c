/* Parses --sweep and makes its arms. Values stay text until they are set in an arm, because each
 * option parses its own values. */
#include "client/bench/sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/options.h"

enum { SERIES_MAX = 1 << 20 };
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

static int add_number(struct sweep_factor *factor, int64_t number, struct error *err)
{
    char text[SWEEP_VALUE_BYTES];
    snprintf(text, sizeof text, "%" PRId64, number);
    return add_value(factor, text, err);
}

/* The numbers at the end of the values so far, at most three of them, oldest first; returns how
 * many there are. */
static int last_numbers(const struct sweep_factor *factor, int numbers[3])
{
    int n = 0;
    struct error ignored;
    while (n < 3 && n < factor->n) {
        const char *text = factor->values[factor->n - 1 - n];
        if (options_int(&numbers[2 - n], "--sweep", text, 0, SERIES_MAX, &ignored)) break;
        n++;
    }
    memmove(numbers, numbers + 3 - n, (size_t)n * sizeof *numbers);
    return n;
}

/* The values after "..." up to `text`, which the series must reach. */
static int add_series(struct sweep_factor *factor, const char *text, struct error *err)
{
    int numbers[3] = {0}, last = 0, rc = 0;
    int n = last_numbers(factor, numbers);
    if (n < 2) {
        return error_set(err, ERR_ARGUMENT, "--sweep: %s needs two numbers or more before ...",
                         factor->name);
    }
    int64_t at = numbers[n - 1], before = numbers[n - 2], first = numbers[0];
    bool has_factor = n == 3 && before > first && first > 0 && at * first == before * before &&
                      at - before != before - first && at % before == 0;
    int64_t factor_by = has_factor ? at / before : 1, step = has_factor ? 0 : at - before;
    TRY(options_int(&last, "--sweep", text, 0, SERIES_MAX, err));
    if (step <= 0 && !has_factor) goto unreached;
    while (at < last) {
        at = at * factor_by + step;
        if (at <= last) TRY(add_number(factor, at, err));
    }
    if (at == last) return 0;
unreached:
    rc = error_set(err, ERR_ARGUMENT, "--sweep: the series of %s does not reach %s", factor->name,
                   text);
out:
    return rc;
}

/* A value, whole numbers FIRST..LAST, "...", or what comes after it. */
static int add_values(struct sweep_factor *factor, char *text, struct error *err)
{
    char *dots = strstr(text, "..");
    int first = 0, last = 0, rc = 0;
    if (strcmp(text, "...") == 0 && !factor->is_open) {
        factor->is_open = true;
        return 0;
    }
    if (factor->is_open) {
        factor->is_open = false;
        return add_series(factor, text, err);
    }
    if (!dots) return add_value(factor, text, err);
    *dots = '\0';
    TRY(options_int(&first, "--sweep", text, 0, SERIES_MAX, err));
    TRY(options_int(&last, "--sweep", dots + 2, first, SERIES_MAX, err));
    for (int i = first; i <= last; i++) {
        TRY(add_number(factor, i, err));
    }
out:
    return rc;
}

static int begin_factor(struct sweep *sweep, const char *name, struct error *err)
{
    if (sweep->n && sweep->factors[sweep->n - 1].is_open) {
        return error_set(err, ERR_ARGUMENT, "--sweep: %s has no value after ...",
                         sweep->factors[sweep->n - 1].name);
    }
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
    bool is_value = piece[0] >= '0' && piece[0] <= '9'; /* 6=2, a value of logit-bias */
    if (equals && !is_value) {
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
    for (int i = 0; i < sweep->n && !rc; i++) {
        if (!sweep->factors[i].is_open) continue;
        rc = error_set(err, ERR_ARGUMENT, "--sweep: %s has no value after ...",
                       sweep->factors[i].name);
    }
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

/* True if the command has {name}. K, C and R are the bench's own. */
static bool is_of_start(const char *start, const char *name)
{
    char braced[SWEEP_NAME_BYTES + 2];
    bool is_own = strcmp(name, "K") == 0 || strcmp(name, "C") == 0 || strcmp(name, "R") == 0;
    snprintf(braced, sizeof braced, "{%s}", name);
    return start && !is_own && strstr(start, braced);
}

/* A value becomes a word of the arm's `started`, and the words end at blanks. */
static int add_started(struct bench_arm *arm, const char *name, const char *value,
                       struct error *err)
{
    if (strpbrk(value, " =")) {
        return error_set(
            err, ERR_ARGUMENT,
            "--sweep %s: '%s' has a blank or an equals sign, which --start cannot take", name,
            value);
    }
    add_word(arm->started, name, value);
    return 0;
}

static int apply(struct bench_arm *arm, const char *start, const char *name, const char *value,
                 struct error *err)
{
    bool is_rank = strcmp(name, "T") == 0, is_started = is_of_start(start, name);
    int rc = 0;
    add_word(arm->label, name, value);
    if (is_started) TRY(add_started(arm, name, value, err));
    if (is_rank) {
        return options_int(&arm->n_ranks, "--sweep T", value, 1, ARM_RANKS_MAX, err);
    }
    if (strcmp(name, "C") == 0) {
        return options_int(&arm->concurrency, "--sweep C", value, 1, ARM_CONCURRENCY_MAX, err);
    }
    if (strcmp(name, "R") == 0) {
        return options_float(&arm->rate_hz, "--sweep R", value, 1e-4f, rate_most_hz, err);
    }
    if (strcmp(name, "K") != 0) add_word(arm->others, name, value);
    if (is_started && strcmp(name, "groups") == 0) {
        return options_int(&arm->n_groups, "--sweep groups", value, 1, ARM_GROUPS_MAX, err);
    }
    if (is_started) return 0;
    if (strcmp(name, "K") == 0 && strcmp(value, SWEEP_PLAN) == 0) {
        arm->generate.request.strategy = STRATEGY_PLANNED;
        arm->generate.request.n_draft = -1;
        return 0;
    }
    rc = generate_options_set(&arm->generate, name, value, err);
    if (rc) error_wrap(err, "--sweep %s", name);
out:
    return rc;
}

/* Orders the factors: T first, then those that the start command names, then the others, K last. */
static void order_factors(const struct sweep *sweep, const char *start,
                          const struct sweep_factor **ordered)
{
    const struct sweep_factor *t = find(sweep, "T"), *k = find(sweep, "K");
    int n = 0;
    if (t) ordered[n++] = t;
    for (int is_late = 0; is_late < 2; is_late++) {
        for (int i = 0; i < sweep->n; i++) {
            const struct sweep_factor *factor = &sweep->factors[i];
            bool is_other = factor != t && factor != k;
            if (is_other && is_of_start(start, factor->name) == !is_late) ordered[n++] = factor;
        }
    }
    if (k) ordered[n++] = k;
}

static int set_arm(struct bench_arm *arm, const struct sweep *sweep, const char *start, int index,
                   struct error *err)
{
    const struct sweep_factor *ordered[SWEEP_FACTORS_MAX];
    const char *values[SWEEP_FACTORS_MAX];
    int rc = 0;
    order_factors(sweep, start, ordered);
    generate_options_own(&arm->generate); /* not the lists of base */
    for (int f = sweep->n - 1; f >= 0; f--) {
        values[f] = ordered[f]->values[index % ordered[f]->n];
        index /= ordered[f]->n;
    }
    for (int f = 0; f < sweep->n; f++) {
        TRY(apply(arm, start, ordered[f]->name, values[f], err));
    }
    TRY(generate_options_check(&arm->generate, err));
out:
    return rc;
}

int sweep_arms(const struct sweep *sweep, const struct bench_arm *base, const char *start,
               struct bench_arm **arms, int *n_arms, struct error *err)
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
        (*arms)[i] = *base;
        TRY(set_arm(&(*arms)[i], sweep, start, i, err));
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
