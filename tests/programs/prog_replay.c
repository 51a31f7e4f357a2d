/* ctest: libs=speculation,model */
/* Replays recorded rounds: from the models alone it computes q and p of each round again, draws the
 * guesses with their coins and runs the acceptance rule, and compares the tokens one by one.
 *   prog_replay TARGET DRAFT <RECORD    DRAFT none: no guess was drawn from a model
 * The record is of numbers and words between spaces:
 *   text SEED RULE TEMPERATURE TOP_K TOP_P FULL_ROWS N ID...
 *   round KEPT IS_DRAWN NEXT_P N ID... N_GUESSES (ID PLACE SIBLING Q P)...
 * A round's guesses are a chain and siblings of its guesses; those that stayed come first, then the
 * others by place and sibling. Without IS_DRAWN they were found, and their q is one-hot. A p of -1
 * is not known. Prints the counts of what was compared, and of what is wrong with its first case.
 *
 * The passes are plain ones: no tree, no other lanes, a token after a sibling is a pass of its own.
 * p is computed a second time from all logits in plain double arithmetic and compared with the row
 * that acceptance sees. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "model/backend/cpu/cpu.h"
#include "model/model.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"

enum {
    TOKENS_MAX = 1024,
    SUPPORT = 64, /* --draft-support */
    ARENA_BYTES = 64 << 20,
    WORD_BYTES = 64
};
/* Largest distance of p in float from plain p in double. */
static const double P_DISTANCE = 2e-5;

struct guess {
    int32_t id;
    int place, sibling;
    float q, p;
};

struct round {
    int n_kept, is_drawn, n_ids, n_guesses, n_chain;
    float next_p;
    int32_t ids[TOKENS_MAX];
    struct guess guesses[TREE_NODES_MAX]; /* in the order of the record */
};

/* A model with the KV of the first n_fed tokens. */
struct reader {
    struct checkpoint *ck;
    struct model *model;
    int n_fed;
};

struct replay {
    struct reader target, draft; /* draft.model NULL: there is none */
    struct backend *backend;
    struct arena arena;
    const struct rule *rule;
    struct sampling_params params;
    uint64_t seed;
    int full_rows, n; /* n committed tokens */
    int32_t tokens[TOKENS_MAX], blocks[TOKENS_MAX / KV_BLOCK_TOKENS];
    struct select_item *items;
    double *plain; /* p by plain arithmetic */
    struct round round;
    struct guess_tree
        tree; /* the round's guesses: the chain, then siblings, the deepest ones first */
    const struct guess *nodes[TREE_NODES_MAX];
    struct sparse_dist q[TREE_NODES_MAX]; /* of each place of the chain */
    struct target_row rows[1 + TREE_NODES_MAX];
    struct {
        int texts, rounds, guesses, drawn, siblings, rows, tokens, wrong;
        char first[256];
    } counts;
};

__attribute__((format(printf, 2, 3))) static void wrong(struct replay *r, const char *format, ...)
{
    if (r->counts.wrong++) return;
    va_list args;
    va_start(args, format);
    int len = snprintf(r->counts.first, sizeof r->counts.first,
                       "seed %" PRIu64 ", %s, after %d tokens: ", r->seed, r->rule->name, r->n);
    vsnprintf(r->counts.first + len, sizeof r->counts.first - (size_t)len, format, args);
    va_end(args);
}

/* ---- the record ---- */

static int read_ids(int32_t *ids, int *n, struct error *err)
{
    bool is_right = scanf("%d", n) == 1 && *n >= 0 && *n <= TOKENS_MAX;
    for (int i = 0; is_right && i < *n; i++) {
        is_right = scanf("%" SCNd32, &ids[i]) == 1;
    }
    return is_right ? 0 : error_set(err, ERR_FORMAT, "a list of ids is no good");
}

static int read_text(struct replay *r, struct error *err)
{
    char rule[WORD_BYTES];
    struct sampling_params *p = &r->params;
    *p = (struct sampling_params){0};
    if (scanf("%" SCNu64 " %63s %f %d %f %d", &r->seed, rule, &p->temperature, &p->top_k, &p->top_p,
              &r->full_rows) != 6) {
        return error_set(err, ERR_FORMAT, "the head of a text is no good");
    }
    int rc = rule_parse(rule, &r->rule, err);
    if (!rc) rc = read_ids(r->tokens, &r->n, err);
    r->target.n_fed = r->draft.n_fed = 0;
    r->counts.texts++;
    return rc;
}

static int read_round(struct round *round, struct error *err)
{
    *round = (struct round){0};
    bool is_right = scanf("%d %d %f", &round->n_kept, &round->is_drawn, &round->next_p) == 3;
    int rc = is_right ? read_ids(round->ids, &round->n_ids, err) : ERR_FORMAT;
    is_right = !rc && scanf("%d", &round->n_guesses) == 1 && round->n_guesses >= 0 &&
               round->n_guesses <= TREE_NODES_MAX && round->n_ids > 0;
    for (int i = 0; is_right && i < round->n_guesses; i++) {
        struct guess *g = &round->guesses[i];
        is_right =
            scanf("%" SCNd32 " %d %d %f %f", &g->id, &g->place, &g->sibling, &g->q, &g->p) == 5 &&
            g->place >= 0 && g->place < DRAFT_MAX && g->sibling >= 0 && g->sibling <= SIBLINGS_MAX;
    }
    return is_right ? 0 : error_set(err, ERR_FORMAT, "a round is no good");
}

/* The guess that is `sibling` of a place. */
static const struct guess *find(const struct round *round, int place, int sibling)
{
    for (int i = 0; i < round->n_guesses; i++) {
        const struct guess *g = &round->guesses[i];
        if (g->place == place && g->sibling == sibling) return g;
    }
    return NULL;
}

static void add_node(struct replay *r, const struct guess *guess, int parent, int mark)
{
    r->nodes[r->tree.n] = guess;
    guess_tree_add(&r->tree, parent, mark, guess->id, &r->q[guess->place]);
}

static int make_tree(struct replay *r, struct error *err)
{
    struct round *round = &r->round;
    const struct guess *guess;
    guess_tree_begin(&r->tree, r->n);
    round->n_chain = 0;
    while ((guess = find(round, round->n_chain, 0))) {
        add_node(r, guess, round->n_chain++ - 1, GUESS_CHAIN);
    }
    for (int place = round->n_chain - 1; place >= 0; place--) {
        for (int s = 1; (guess = find(round, place, s)); s++) {
            add_node(r, guess, place - 1, GUESS_SIBLING);
        }
    }
    if (r->tree.n == round->n_guesses) return 0;
    return error_set(err, ERR_FORMAT, "a round has guesses that are neither of a chain nor beside");
}

/* ---- the draft ---- */

/* Feeds tokens up to `end`; the logits of the last n_rows of them stay. */
static int feed(struct replay *r, struct reader *reader, int end, int n_rows, struct error *err)
{
    static struct forward_row rows[DRAFT_MAX + 1];
    int first = reader->n_fed, n = end - first;
    const struct forward_lane lane = {first, n, r->tokens + first, r->blocks, NULL};
    for (int i = 0; i < n_rows; i++) {
        rows[i] = (struct forward_row){0, n - n_rows + i};
    }
    return model_forward(reader->model, &lane, 1, rows, n_rows, err);
}

/* Draws the chain's guess and its siblings for a place, from row `place` of the draft's last
 * pass. */
static int draw_place(struct replay *r, int place, struct error *err)
{
    struct sparse_dist *q = &r->q[place];
    const struct rng_address at = {r->seed, (uint32_t)(r->n + place), (uint32_t)r->n};
    const float *logits = model_logits(r->draft.model, place);
    int32_t guesses[1 + SIBLINGS_MAX];
    int n = 0;
    q->ids = arena_take(&r->arena, SUPPORT, sizeof *q->ids);
    q->p = arena_take(&r->arena, SUPPORT, sizeof *q->p);
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for q");
    sampling_draft_dist(logits, model_shard(r->draft.model)->n_vocab, &r->params, SUPPORT, r->items,
                        q);
    if (r->rule->is_coupled) {
        float own[SUPPORT];
        for (int i = 0; i < q->n; i++) {
            own[i] = logits[q->ids[i]];
        }
        n = multi_draft_coupled(q->ids, own, q->n, r->params.temperature, &at, 1 + SIBLINGS_MAX,
                                guesses);
        q->n = 1;
        q->ids[0] = guesses[0];
        q->p[0] = 1;
    } else {
        guesses[n++] = sparse_draw(q, rng_uniform(&at, RNG_DRAFT, 0));
        for (; n <= SIBLINGS_MAX && !r->rule->is_greedy; n++) {
            guesses[n] = multi_draft_draw(q, guesses, n, rng_uniform(&at, RNG_DRAFT, (uint32_t)n));
            if (guesses[n] < 0) break;
        }
    }
    const struct guess *made;
    for (int s = 0; s < n && (made = find(&r->round, place, s)); s++) {
        if (made->id != guesses[s] || made->q != fminf(sparse_prob(q, made->id), 1)) {
            wrong(r, "guess %d of place %d is %" PRId32 " with q %g, not %" PRId32 " with %g", s,
                  place, made->id, (double)made->q, guesses[s], (double)sparse_prob(q, made->id));
        }
        r->counts.drawn++;
        r->counts.siblings += s > 0 ? 1 : 0;
    }
    return 0;
}

/* A q that gives the guess all mass. */
static int find_place(struct replay *r, int place, struct error *err)
{
    struct sparse_dist *q = &r->q[place];
    q->n = 1;
    q->ids = arena_take(&r->arena, 1, sizeof *q->ids);
    q->p = arena_take(&r->arena, 1, sizeof *q->p);
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for q");
    q->ids[0] = find(&r->round, place, 0)->id;
    q->p[0] = 1;
    if (r->tree.n > r->round.n_chain) {
        return error_set(err, ERR_FORMAT, "siblings that were found have a q each");
    }
    return 0;
}

static int draw_guesses(struct replay *r, struct error *err)
{
    int n = r->round.n_chain, rc = 0;
    for (int i = 0; i < n; i++) {
        r->tokens[r->n + i] = r->tree.tokens[i];
    }
    bool is_drawn = r->round.is_drawn && n > 0;
    if (is_drawn && !r->draft.model) return error_set(err, ERR_ARGUMENT, "there is no draft");
    if (is_drawn) TRY(feed(r, &r->draft, r->n + n - 1, n, err));
    if (is_drawn) r->draft.n_fed = r->n;
    for (int i = 0; i < n; i++) {
        TRY(is_drawn ? draw_place(r, i, err) : find_place(r, i, err));
    }
out:
    return rc;
}

/* ---- the target ---- */

static int by_score(const void *left, const void *right)
{
    const struct select_item *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : 1; /* ties go to the lowest id */
}

/* p of all tokens by plain arithmetic: temperature, top-k, top-p over what that left. */
static void compute_plain(struct replay *r, const float *logits, int n_vocab)
{
    double sum = 0, kept = 0;
    for (int i = 0; i < n_vocab; i++) {
        r->items[i].id = i;
        r->items[i].score = (double)logits[i];
        r->plain[i] = 0;
    }
    qsort(r->items, (size_t)n_vocab, sizeof *r->items, by_score);
    int n = r->params.top_k > 0 && r->params.top_k < n_vocab ? r->params.top_k : n_vocab;
    double t = (double)r->params.temperature, best = (double)r->items[0].score;
    for (int i = 0; i < n; i++) {
        r->plain[r->items[i].id] = exp(((double)r->items[i].score - best) / t);
        sum += r->plain[r->items[i].id];
    }
    for (int i = 0; i < n; i++) {
        double *p = &r->plain[r->items[i].id];
        if (kept >= (double)r->params.top_p * sum) *p = 0;
        kept += *p;
    }
    sum = 0;
    for (int i = 0; i < n; i++) {
        sum += r->plain[r->items[i].id];
    }
    for (int i = 0; i < n; i++) {
        r->plain[r->items[i].id] /= sum;
    }
}

static void check_plain(struct replay *r, const struct target_row *row, const float *logits)
{
    int n_vocab = model_shard(r->target.model)->n_vocab;
    double outside = 1;
    if (r->rule->is_greedy || r->rule->is_coupled) return;
    compute_plain(r, logits, n_vocab);
    for (int i = 0; i < row->n; i++) {
        double p = r->plain[row->ids[i]];
        outside -= p;
        if (fabs(p - (double)row->p[i]) > P_DISTANCE) {
            wrong(r, "p of %" PRId32 " is %g, not %g", row->ids[i], (double)row->p[i], p);
        }
    }
    if (fabs(outside - row->outside_mass) > P_DISTANCE) {
        wrong(r, "outside of a row is %g, not %g", row->outside_mass, outside);
    }
    r->counts.rows++;
}

/* The row after `node` (-1: the committed tokens), as the slices answer and are merged. */
static int merge_row(struct replay *r, int node, const float *logits, struct error *err)
{
    const struct shard *shard = model_shard(r->target.model);
    struct target_row *row = &r->rows[1 + node];
    int depth = guess_tree_depth(&r->tree, node), rc = 0;
    struct slice_row *slices = arena_take(&r->arena, (size_t)shard->n_slices, sizeof *slices);
    struct slice_row *before = arena_take(&r->arena, (size_t)shard->n_slices, sizeof *before);
    if (!slices || !before) return error_set(err, ERR_NO_MEMORY, "no room for a row");
    struct target_want want = {.rule = r->rule, .params = &r->params};
    want.at = (struct rng_address){r->seed, (uint32_t)(r->n + depth), (uint32_t)r->n};
    want.full_rows = r->full_rows != 0;
    TRY(multi_draft_want(&r->tree, node, &r->arena, &want, err));
    struct row_wish wish;
    target_row_wish(&want, &wish);
    bool more = true;
    for (int question = 0; more; question++) {
        for (int s = 0; s < shard->n_slices; s++) {
            struct answer_item item = {.slice = s, .wish = &wish};
            row_slice_range(shard->n_vocab, shard->n_slices, s, &item.first_id, &item.n_cols);
            item.logits = logits + (size_t)s * (size_t)shard->vocab_slice;
            TRY(row_slice_answer(&item, &r->arena, &slices[s], err));
        }
        if (question) TRY(target_row_carry(before, slices, shard->n_slices, err));
        memcpy(before, slices, (size_t)shard->n_slices * sizeof *slices);
        const struct target_slices all = {slices, shard->n_slices, shard->n_vocab};
        TRY(target_row_merge(&all, &want, &wish, &r->arena, row, &more, err));
    }
    check_plain(r, row, logits);
out:
    return rc;
}

/* Rows after the committed tokens and each guess. A sibling takes the place of a token of the chain
 * in the KV, and the deepest come first, so what is before it is as it should be. */
static int make_rows(struct replay *r, struct error *err)
{
    int n_chain = r->round.n_chain, rc = 0;
    TRY(feed(r, &r->target, r->n + n_chain, n_chain + 1, err));
    for (int node = -1; node < n_chain; node++) {
        TRY(merge_row(r, node, model_logits(r->target.model, node + 1), err));
    }
    for (int node = n_chain; node < r->tree.n; node++) {
        int position = r->n + r->nodes[node]->place;
        int32_t of_chain = r->tokens[position];
        r->tokens[position] = r->tree.tokens[node];
        r->target.n_fed = position;
        TRY(feed(r, &r->target, position + 1, 1, err));
        TRY(merge_row(r, node, model_logits(r->target.model, 0), err));
        r->tokens[position] = of_chain;
    }
    r->target.n_fed = r->n;
out:
    return rc;
}

/* ---- acceptance ---- */

static int accept(struct replay *r, struct tree_result *result, struct error *err)
{
    const struct rng_address at = {r->seed, (uint32_t)r->n, (uint32_t)r->n};
    return rule_accept(r->rule, &tree_rules[TREE_RULE_AUTO], &r->tree, r->rows, &at, &r->arena,
                       result, err);
}

/* p of an id in the row after a node, as rounds are shown; -1: the row does not tell it. */
static float p_after(const struct replay *r, int node, int32_t id)
{
    const struct target_row *row = &r->rows[1 + node];
    int at = target_row_find(row, id);
    return at < 0 ? -1 : row->p[at] < 1 ? row->p[at] : 1; /* sums are rounded */
}

static void compare(struct replay *r, const struct tree_result *result)
{
    const struct round *round = &r->round;
    int last = -1; /* node before the token */
    for (int node = 0; node < r->tree.n; node++) {
        float told = r->nodes[node]->p, p = p_after(r, r->tree.parents[node], r->tree.tokens[node]);
        if (told >= 0 && told != p) {
            wrong(r, "p of guess %d is %g, not %g", node, (double)told, (double)p);
        }
    }
    /* A text may end within a round. */
    int n_kept = result->n_accepted < round->n_ids ? result->n_accepted : round->n_ids;
    if (round->n_kept != n_kept || round->n_ids > result->n_accepted + 1) {
        wrong(r, "%d of %d ids are guesses that stay, not %d", round->n_kept, round->n_ids, n_kept);
    }
    for (int i = 0; i < round->n_ids && i <= result->n_accepted; i++) {
        int node = i < result->n_accepted ? result->path[i] : -1;
        int32_t id = node >= 0 ? r->tree.tokens[node] : result->next;
        float told = node >= 0 ? r->nodes[node]->p : round->next_p, p = p_after(r, last, id);
        if (round->ids[i] != id) {
            wrong(r, "id %d is %" PRId32 ", not %" PRId32, i, round->ids[i], id);
        } else if (told != p) {
            wrong(r, "p of id %d is %g, not %g", i, (double)told, (double)p);
        }
        last = node;
        r->counts.tokens++;
    }
}

static int replay_round(struct replay *r, struct error *err)
{
    struct tree_result result = {0};
    int rc = 0;
    arena_reset(&r->arena);
    TRY(read_round(&r->round, err));
    TRY(make_tree(r, err));
    if (r->n + r->round.n_chain + 1 > TOKENS_MAX) {
        return error_set(err, ERR_ARGUMENT, "a text has more than %d tokens", TOKENS_MAX);
    }
    TRY(draw_guesses(r, err));
    TRY(make_rows(r, err));
    TRY(accept(r, &result, err));
    compare(r, &result);
    memcpy(r->tokens + r->n, r->round.ids, (size_t)r->round.n_ids * sizeof *r->tokens);
    r->n += r->round.n_ids;
    r->counts.rounds++;
    r->counts.guesses += r->round.n_guesses;
out:
    return rc;
}

static int open_reader(struct replay *r, struct reader *reader, const char *name, struct error *err)
{
    const struct model_options options = {.n_kv_blocks = TOKENS_MAX / KV_BLOCK_TOKENS,
                                          .max_tokens = TOKENS_MAX,
                                          .max_rows = DRAFT_MAX + 1,
                                          .max_lanes = 1};
    int rc = 0;
    TRY(checkpoint_open(&reader->ck, name, err));
    TRY(model_open(&reader->model, reader->ck, comm_single(), r->backend, &options, err));
out:
    return rc;
}

static int replay_all(struct replay *r, struct error *err)
{
    char word[WORD_BYTES];
    int rc = 0, n_vocab = model_shard(r->target.model)->n_vocab;
    for (int i = 0; i < TOKENS_MAX / KV_BLOCK_TOKENS; i++) {
        r->blocks[i] = i;
    }
    TRY(arena_open(&r->arena, ARENA_BYTES, err));
    TRY(mem_array(&r->items, (size_t)n_vocab, sizeof *r->items, err));
    TRY(mem_array(&r->plain, (size_t)n_vocab, sizeof *r->plain, err));
    while (scanf("%63s", word) == 1) {
        bool is_text = strcmp(word, "text") == 0;
        if (!is_text && (strcmp(word, "round") != 0 || !r->rule)) {
            return error_set(err, ERR_FORMAT, "%s is neither text nor round", word);
        }
        TRY(is_text ? read_text(r, err) : replay_round(r, err));
    }
out:
    return rc;
}

int main(int argc, char **argv)
{
    static struct replay r;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    struct error err;
    int rc = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: prog_replay TARGET DRAFT <RECORD\n");
        return 2;
    }
    TRY(backend_cpu_open(&r.backend, &cpu, &err));
    TRY(open_reader(&r, &r.target, argv[1], &err));
    if (strcmp(argv[2], "none") != 0) TRY(open_reader(&r, &r.draft, argv[2], &err));
    TRY(replay_all(&r, &err));
    printf("{\"texts\":%d,\"rounds\":%d,\"guesses\":%d,\"drawn\":%d,\"siblings\":%d,\"rows\":%d,"
           "\"tokens\":%d,\"wrong\":%d,\"first\":\"%s\"}\n",
           r.counts.texts, r.counts.rounds, r.counts.guesses, r.counts.drawn, r.counts.siblings,
           r.counts.rows, r.counts.tokens, r.counts.wrong, r.counts.first);
out:
    if (rc) fprintf(stderr, "prog_replay: %s\n", err.text);
    free(r.items);
    free(r.plain);
    arena_close(&r.arena);
    model_close(r.draft.model);
    model_close(r.target.model);
    checkpoint_close(r.draft.ck);
    checkpoint_close(r.target.ck);
    if (r.backend) r.backend->ops->close(r.backend);
    return rc ? 1 : 0;
}
