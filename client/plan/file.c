/* Reads the file by tables of keys: each row says where a number goes and what it may be. */
#include "client/plan/file.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/system/file.h"
#include "base/text/json.h"
#include "speculation/theory/rising.h"

#define MOST 1e30 /* of a number without a limit of its own */

enum {
    FILE_BYTES_MAX = 1 << 20,
    ORIGIN_BYTES = 256,
    PER_HOST_MAX = 1024 /* ranks that a host has room for */
};

/* One key: a number of either kind, or anything that is read elsewhere (neither). */
struct key {
    const char *name;
    double *number;
    int *count;
    double least, most;
    bool is_needed;
};

static bool knows(const struct key *keys, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(keys[i].name, name) == 0) return true;
    }
    return false;
}

static int read_key(const json_t *object, const struct key *key, const char *origin,
                    struct error *err)
{
    int rc = 0;
    if (key->is_needed && !json_member(object, key->name)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is missing", origin, key->name);
    }
    if (key->count) {
        return json_read_int(object, key->name, (int)key->least, (int)key->most, key->count, origin,
                             err);
    }
    if (!key->number) return 0;
    TRY(json_read_double(object, key->name, key->number, origin, err));
    if (!(*key->number >= key->least && *key->number <= key->most)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is %g, expected %g to %g", origin, key->name,
                         *key->number, key->least, key->most);
    }
out:
    return rc;
}

static int read_keys(json_t *object, const struct key *keys, int n, const char *origin,
                     struct error *err)
{
    const char *name;
    json_t *value;
    int rc = 0;
    if (!json_is_object(object)) return error_set(err, ERR_FORMAT, "%s: not an object", origin);
    json_object_foreach(object, name, value)
    {
        if (knows(keys, n, name)) continue;
        return error_set(err, ERR_FORMAT, "%s: \"%.60s\" is no key that is known here", origin,
                         name);
    }
    for (int i = 0; i < n && !rc; i++) {
        rc = read_key(object, &keys[i], origin, err);
    }
    return rc;
}

/* The member that is an object of its own; nothing happens when it is missing. */
static int read_part(const json_t *root, const char *part, const struct key *keys, int n,
                     const char *path, struct error *err)
{
    char origin[ORIGIN_BYTES];
    json_t *object = json_member(root, part);
    snprintf(origin, sizeof origin, "%.180s: %s", path, part);
    return object ? read_keys(object, keys, n, origin, err) : 0;
}

/* ---- lists ---- */

static int read_pair(const json_t *pair, double *at, double *us)
{
    const json_t *first = json_array_get(pair, 0), *second = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_number(first) || !json_is_number(second)) return -1;
    *at = json_number_value(first);
    *us = json_number_value(second);
    return *at >= 1 && *us >= 0 && *us <= DBL_MAX ? 0 : -1;
}

/* [[1, 160.5], [5, 300]]: rows or lanes in ascending order, and microseconds. */
static int read_curve(const json_t *root, const char *name, struct cluster_curve *curve,
                      const char *path, struct error *err)
{
    const json_t *list = json_member(root, name);
    size_t n = json_array_size(list);
    if (!list) return 0;
    if (!json_is_array(list) || n < 1 || n > CLUSTER_POINTS_MAX) {
        return error_set(err, ERR_FORMAT, "%.180s: \"%s\" is no list of 1 to %d pairs", path, name,
                         CLUSTER_POINTS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        bool is_wrong = read_pair(json_array_get(list, i), &curve->at[i], &curve->us[i]) ||
                        (i > 0 && curve->at[i] <= curve->at[i - 1]);
        if (is_wrong) {
            return error_set(err, ERR_FORMAT,
                             "%.180s: \"%s\", pair %zu: expected [COUNT, MICROSECONDS], with the "
                             "counts ascending from 1",
                             path, name, i + 1);
        }
    }
    curve->n = (int)n;
    rising_fit(curve->us, curve->n);
    return 0;
}

/* Reads one number, or one per position; missing positions repeat the last. */
static int read_alpha(const json_t *root, double alpha[DRAFT_MAX], const char *path,
                      struct error *err)
{
    const json_t *value = json_member(root, "alpha");
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < DRAFT_MAX && n > 0; i++) {
        size_t at = i < n ? i : n - 1;
        const json_t *one = json_is_array(value) ? json_array_get(value, at) : value;
        alpha[i] = json_number_value(one);
        if (!json_is_number(one) || alpha[i] < 0 || alpha[i] > 1) n = 0;
    }
    if (n > 0 && n <= DRAFT_MAX) return 0;
    return error_set(err, ERR_FORMAT,
                     "%.180s: \"alpha\" is no number of 0 to 1, or 1 to %d of them", path,
                     DRAFT_MAX);
}

static int read_sum(json_t *object, struct cluster_sum *sum, const char *origin, struct error *err)
{
    const struct key keys[] = {
        {"ranks", NULL, &sum->n_ranks, 2, RANKS_MAX, true},
        {"us", &sum->us, NULL, 0, MOST, true},
        {"us_per_row", &sum->row_us, NULL, 0, MOST, false},
    };
    return read_keys(object, keys, sizeof keys / sizeof *keys, origin, err);
}

static int read_sums(const json_t *root, struct cluster_costs *costs, const char *path,
                     struct error *err)
{
    char origin[ORIGIN_BYTES];
    const json_t *part = json_member(root, "collectives"), *list = json_member(part, "measured");
    int rc = 0;
    if (!list) return 0;
    if (!json_is_array(list) || json_array_size(list) > CLUSTER_SUMS_MAX) {
        return error_set(err, ERR_FORMAT,
                         "%.180s: collectives: \"measured\" is no list of at most %d", path,
                         CLUSTER_SUMS_MAX);
    }
    costs->n_measured = (int)json_array_size(list);
    for (int i = 0; i < costs->n_measured && !rc; i++) {
        snprintf(origin, sizeof origin, "%.180s: collectives: measured, number %d", path, i + 1);
        rc = read_sum(json_array_get(list, (size_t)i), &costs->sums[i], origin, err);
    }
    return rc;
}

/* ---- parts ---- */

#define N_OF(keys) (int)(sizeof(keys) / sizeof *(keys))

static int read_collectives(const json_t *root, struct cluster_costs *c, const char *path,
                            struct error *err)
{
    const struct key keys[] = {
        {"per_step", NULL, &c->n_sums, 1, 100000, true},
        {"bytes_per_row", &c->sum_bytes, NULL, 0, MOST, false},
        {"measured", NULL, NULL, 0, 0, false},
        {"hop_us", &c->hops.us, NULL, 0, MOST, false},
        {"bytes_per_second", &c->hops.bytes_per_second, NULL, 0, MOST, false},
        {"ranks_per_host", NULL, &c->hops.per_host, 1, PER_HOST_MAX, false},
        {"hop_between_hosts_us", &c->hops.host_us, NULL, 0, MOST, false},
    };
    int rc = read_part(root, "collectives", keys, N_OF(keys), path, err);
    return rc ? rc : read_sums(root, c, path, err);
}

static int read_coordinator(const json_t *root, struct cluster_costs *c, const char *path,
                            struct error *err)
{
    const struct key coordinator[] = {
        {"us_per_round", &c->round_us, NULL, 0, MOST, true},
        {"us_per_lane", &c->lane_us, NULL, 0, MOST, false},
        {"us_per_row", &c->row_us, NULL, 0, MOST, false},
        {"rounds_at_once", NULL, &c->n_engines, 0, CLUSTER_GROUPS_MAX, false},
        {"drafts_at_once", NULL, &c->n_drafts, 0, CLUSTER_GROUPS_MAX, false},
        {"groups_most", NULL, &c->n_groups_most, 1, CLUSTER_GROUPS_MAX, false},
        {"busy_most", &c->busy_most, NULL, 0.01, 1, false},
    };
    const struct key wire[] = {
        {"us_per_step", &c->wire_us, NULL, 0, MOST, true},
        {"us_per_rank", &c->rank_us, NULL, 0, MOST, false},
        {"us_per_row", &c->wire_row_us, NULL, 0, MOST, false},
        {"bytes_per_row", &c->row_bytes, NULL, 0, MOST, false},
        {"bytes_per_second", &c->wire_bytes_per_second, NULL, 0, MOST, false},
    };
    int rc = read_part(root, "coordinator", coordinator, N_OF(coordinator), path, err);
    return rc ? rc : read_part(root, "wire", wire, N_OF(wire), path, err);
}

static int read_shared(const json_t *root, struct cluster_costs *c, const char *path,
                       struct error *err)
{
    const struct key keys[] = {
        {"cores", NULL, &c->n_cores, 1, 100000, true},
        {"is_shared", NULL, NULL, 0, 0, false},
        {"slowdown", &c->slowdown, NULL, 1, 100, false},
    };
    const json_t *host = json_member(root, "host");
    int rc = read_part(root, "host", keys, N_OF(keys), path, err);
    if (rc || !host) return rc;
    return json_read_bool(host, "is_shared", &c->is_shared, path, err);
}

static int read_prices(const json_t *root, struct cluster_costs *c, const char *path,
                       struct error *err)
{
    const struct key prompt[] = {
        {"target_us_per_token", &c->prompt_us, NULL, 0, MOST, false},
        {"draft_us_per_token", &c->read_us, NULL, 0, MOST, false},
    };
    const struct key prices[] = {
        {"rank_hour", &c->rank_price, NULL, 0, MOST, false},
        {"coordinator_hour", &c->coordinator_price, NULL, 0, MOST, false},
    };
    int rc = read_part(root, "prompt", prompt, N_OF(prompt), path, err);
    return rc ? rc : read_part(root, "prices", prices, N_OF(prices), path, err);
}

/* ---- questions ---- */

/* "best" or a number. */
static int read_k(const json_t *object, int *k, const char *origin, struct error *err)
{
    const json_t *value = json_member(object, "k");
    *k = -1;
    if (json_is_string(value) && strcmp(json_string_value(value), "best") == 0) return 0;
    return json_read_int(object, "k", 0, DRAFT_MAX, k, origin, err);
}

static int read_question(json_t *object, const struct cluster_costs *costs,
                         struct cluster_question *q, const char *origin, struct error *err)
{
    const struct key keys[] = {
        {"groups", NULL, &q->n_groups, 1, CLUSTER_GROUPS_MAX, true},
        {"ranks", NULL, &q->n_ranks, 1, RANKS_MAX, true},
        {"clients", NULL, &q->n_clients, 1, CLUSTER_CLIENTS_MAX, true},
        {"tokens", NULL, &q->n_tokens, 1, 1 << 30, true},
        {"prompt_tokens", NULL, &q->n_prompt, 0, 1 << 30, false},
        {"coordinators", NULL, &q->n_coordinators, 1, CLUSTER_GROUPS_MAX, false},
        {"link_us", &q->link_us, NULL, 0, MOST, false},
        {"k", NULL, NULL, 0, 0, false},
    };
    int rc = 0;
    *q = (struct cluster_question){0};
    TRY(read_keys(object, keys, N_OF(keys), origin, err));
    TRY(read_k(object, &q->k, origin, err));
    if (q->n_coordinators > q->n_groups) {
        return error_set(err, ERR_FORMAT, "%s: %d coordinators are more than %d groups", origin,
                         q->n_coordinators, q->n_groups);
    }
    if (!cluster_knows_ranks(costs, q->n_ranks)) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: what a sum among %d ranks costs is neither in collectives: measured, "
                       "nor is there collectives: hop_us",
                       origin, q->n_ranks);
    }
out:
    return rc;
}

static int read_questions(struct plan_file *file, const char *path, struct error *err)
{
    char origin[ORIGIN_BYTES];
    const json_t *list = json_member(file->root, "questions");
    int rc = 0;
    if (!json_is_array(list) || !json_array_size(list) ||
        json_array_size(list) > PLAN_QUESTIONS_MAX) {
        return error_set(err, ERR_FORMAT, "%.180s: \"questions\" is no list of 1 to %d objects",
                         path, PLAN_QUESTIONS_MAX);
    }
    file->n_questions = (int)json_array_size(list);
    for (int i = 0; i < file->n_questions && !rc; i++) {
        struct cluster_question *q = &file->questions[i];
        snprintf(origin, sizeof origin, "%.180s: question %d", path, i + 1);
        rc = read_question(json_array_get(list, (size_t)i), &file->costs, q, origin, err);
        file->predicts_ranks[i] = q->n_ranks != file->costs.n_ranks;
    }
    return rc;
}

/* ---- the file ---- */

static int read_assumptions(struct plan_file *file, const char *path, struct error *err)
{
    size_t i;
    json_t *line;
    file->assumptions = json_member(file->root, "assumptions");
    if (!file->assumptions) return 0;
    bool is_list = json_is_array(file->assumptions);
    json_array_foreach(file->assumptions, i, line)
    {
        is_list = is_list && json_is_string(line);
    }
    if (is_list) return 0;
    return error_set(err, ERR_FORMAT, "%.180s: \"assumptions\" is no list of strings", path);
}

static int read_root(struct plan_file *file, const char *path, struct error *err)
{
    struct cluster_costs *c = &file->costs;
    const struct key keys[] = {
        {"name", NULL, NULL, 0, 0, false},
        {"assumptions", NULL, NULL, 0, 0, false},
        {"alpha", NULL, NULL, 0, 0, true},
        {"guess_us", NULL, NULL, 0, 0, true},
        {"step_us", NULL, NULL, 0, 0, true},
        {"ranks", NULL, &c->n_ranks, 1, RANKS_MAX, false},
        {"sharded_ratio", &c->sharded_ratio, NULL, 0, 1, false},
        {"lanes_per_group", NULL, &c->n_lanes_max, 1, 4096, false},
        {"k_most", NULL, &file->k_most, 0, DRAFT_MAX, false},
        {"prompt", NULL, NULL, 0, 0, false},
        {"collectives", NULL, NULL, 0, 0, false},
        {"coordinator", NULL, NULL, 0, 0, true},
        {"wire", NULL, NULL, 0, 0, true},
        {"host", NULL, NULL, 0, 0, false},
        {"prices", NULL, NULL, 0, 0, false},
        {"questions", NULL, NULL, 0, 0, true},
    };
    int rc = 0;
    TRY(read_keys(file->root, keys, N_OF(keys), path, err));
    TRY(json_read_string(file->root, "name", &file->name, path, err));
    TRY(read_assumptions(file, path, err));
    TRY(read_alpha(file->root, c->alpha, path, err));
    TRY(read_curve(file->root, "guess_us", &c->guess, path, err));
    TRY(read_curve(file->root, "step_us", &c->step, path, err));
    TRY(read_collectives(file->root, c, path, err));
    TRY(read_coordinator(file->root, c, path, err));
    TRY(read_shared(file->root, c, path, err));
    TRY(read_prices(file->root, c, path, err));
    TRY(read_questions(file, path, err));
out:
    return rc;
}

int plan_file_open(struct plan_file *file, const char *path, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    *file = (struct plan_file){
        .name = "",
        .k_most = DRAFT_MAX,
        .costs = {.n_ranks = 1,
                  .sharded_ratio = 1,
                  .n_lanes_max = 64,
                  .n_groups_most = GROUPS_MAX,
                  .slowdown = 1,
                  .busy_most = 0.8},
    };
    TRY(file_read_text(&text, &len, path, FILE_BYTES_MAX, err));
    TRY(json_parse_text(&file->root, text, len, path, err));
    TRY(read_root(file, path, err));
out:
    free(text);
    if (rc) plan_file_close(file);
    return rc;
}

void plan_file_close(struct plan_file *file)
{
    json_decref(file->root);
    *file = (struct plan_file){0};
}
