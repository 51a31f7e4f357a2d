/* ctest: labels=quick libs=model timeout=120 */
/* A head that proves itself: whatever its config.json says of the features, the reading that it was
 * made for is found, a head of something else is found out, and chance alone changes nothing. The
 * texts here are such that the target's best tokens are the first guesses of the head itself, with
 * the features that the test chooses as the right ones. */
#include "model/head_proof.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/rng.h"
#include "comm/comm.h"
#include "model/backend/open.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"
#include "tests/support/write_file.h"

#define HEADS       SOURCE_DIR "/tests/golden/heads/"
#define PLACE_HEADS SOURCE_DIR "/tests/golden/place_heads/"
#define BLOCK_HEADS SOURCE_DIR "/tests/golden/block_heads/"
#define MODELS      SOURCE_DIR "/tests/golden/models/"

enum { N_LAYERS = 8, N_TEXTS = 2, N_TOKENS = 150, N_BEGIN = 6, N_BLOCKS = 12, DIM = 64 };

static struct error err;
static struct backend_options how = {.weights = "bf16", .kernels = "auto", .n_threads = 1};
static struct backend *backend;
static struct checkpoint *target;
static struct head_proof *proof;
static struct head_proof_text texts[N_TEXTS];
/* Tokens of the texts, and after them ids that nothing reads. */
static int32_t ids[N_TEXTS][N_TOKENS + HEAD_TABLE_GUESSES], best[N_TEXTS][N_TOKENS];
static uint16_t *features[N_TEXTS];
static char dir[64];

/* ---- a folder with another config.json ---- */

static void path_of(char path[512], const char *head, const char *file)
{
    snprintf(path, 512, HEADS "%s/%s", head, file);
    if (access(path, F_OK) != 0) snprintf(path, 512, PLACE_HEADS "%s/%s", head, file);
    if (access(path, F_OK) != 0) snprintf(path, 512, BLOCK_HEADS "%s/%s", head, file);
}

static void write_config(const char *head, const json_t *config)
{
    char path[512], from[512], text[16384];
    snprintf(dir, sizeof dir, "/tmp/outrider-proof-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    size_t n = json_dumpb(config, text, sizeof text, 0);
    ck_assert_uint_lt(n, sizeof text);
    write_file(dir, "config.json", text, n, NULL, 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    path_of(from, head, "model.safetensors");
    ck_assert_int_eq(symlink(from, path), 0);
}

/* The golden head with `keys` set in its config.json, and those that are null there taken away. */
static void make_folder(const char *head, const char *keys)
{
    char path[512];
    const char *key;
    json_t *value;
    path_of(path, head, "config.json");
    json_t *config = json_load_file(path, 0, NULL), *changed = json_loads(keys, 0, NULL);
    ck_assert_ptr_nonnull(config);
    ck_assert_ptr_nonnull(changed);
    json_object_foreach(changed, key, value)
    {
        if (json_is_null(value)) {
            json_object_del(config, key);
        } else {
            json_object_set(config, key, value);
        }
    }
    write_config(head, config);
    json_decref(config);
    json_decref(changed);
}

static void remove_folder(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

/* ---- texts ---- */

static void open_proof(int every)
{
    const struct head_proof_options options = {.folder = dir,
                                               .head = {.target = target},
                                               .n_layers = N_LAYERS,
                                               .backend = how,
                                               .n_tokens_max = N_TOKENS,
                                               .every = every};
    CHECK_OK(head_proof_open(&proof, &options, &err));
}

static double draw(uint32_t at)
{
    const struct rng_address address = {7, at, 0};
    return rng_uniform(&address, RNG_DRAFT, 0);
}

/* Tokens and features that have nothing to do with each other. */
static void make_texts(void)
{
    size_t width = DIM * (size_t)feature_wish_columns(head_proof_wish(proof));
    uint32_t at = 0;
    for (int t = 0; t < N_TEXTS; t++) {
        features[t] = malloc(N_TOKENS * width * sizeof *features[t]);
        for (int i = 0; i < N_TOKENS; i++) {
            ids[t][i] = (int32_t)(draw(at++) * 300);
        }
        for (int i = N_TOKENS; i < N_TOKENS + HEAD_TABLE_GUESSES; i++) {
            ids[t][i] = -1;
        }
        for (size_t i = 0; i < N_TOKENS * width; i++) {
            features[t][i] = num_float_to_bf16((float)(2 * draw(at++) - 1));
        }
        texts[t] = (struct head_proof_text){N_TOKENS, N_BEGIN, ids[t], best[t], features[t]};
    }
}

/* The features that the head was made for. */
struct truth {
    int n, boundaries[HEAD_FEATURES_MAX];
    bool normed;
    enum head_choice keeps_normed;
};

struct direct {
    struct checkpoint *ck;
    const struct head_block *block; /* of size 0: it is no block drafter */
    struct model *model;
    struct arena arena;
    int32_t blocks[N_BLOCKS];
    uint16_t *rows;
    int width;
};

static void open_direct(struct direct *d, const char *folder, const struct truth *truth)
{
    const struct head_options options = {.target = target,
                                         .norm_before_residual = truth->keeps_normed};
    const struct model_options mo = {
        .n_kv_blocks = N_BLOCKS, .max_tokens = N_TOKENS, .max_rows = 1, .max_lanes = 1};
    CHECK_OK(checkpoint_open_head(&d->ck, folder, &options, &err));
    CHECK_OK(model_open(&d->model, d->ck, comm_single(), backend, &mo, &err));
    d->block = &checkpoint_head(d->ck)->block;
    if (d->block->size == 0) CHECK_OK(model_keep_output(d->model, &err));
    CHECK_OK(arena_open(&d->arena, 1 << 20, &err));
    for (int i = 0; i < N_BLOCKS; i++) {
        d->blocks[i] = N_BLOCKS - 1 - i;
    }
    d->width = (truth->normed ? 1 : truth->n) * DIM;
    d->rows = malloc(N_TOKENS * (size_t)d->width * sizeof *d->rows);
}

static void close_direct(struct direct *d)
{
    model_close(d->model);
    checkpoint_close(d->ck);
    arena_close(&d->arena);
    free(d->rows);
}

/* The best id of the last row of a pass. */
static int32_t best_of(struct direct *d, const struct forward_lane *lane,
                       const struct forward_features *given)
{
    struct select_item item;
    int n_items;
    const struct forward_row row = {0, lane->n_tokens - 1};
    CHECK_OK(model_forward_head(d->model, lane, given, 1, &row, 1, &err));
    arena_reset(&d->arena);
    CHECK_OK(model_best(d->model, 0, 1, &d->arena, &item, &n_items, &err));
    return item.id;
}

/* The best id after rows position .. + n of a text. */
static int32_t pass(struct direct *d, int text, int position, int n, const uint16_t *rows,
                    bool is_recycled)
{
    const struct forward_lane lane = {.position = position,
                                      .n_tokens = n,
                                      .tokens = ids[text] + position + 1,
                                      .blocks = d->blocks};
    const struct forward_features given = {.target = is_recycled ? NULL : rows,
                                           .n_target = is_recycled ? 0 : n,
                                           .recycled = is_recycled ? rows : NULL};
    return best_of(d, &lane, &given);
}

/* The guess of place s from the feature of one row, by a pass of its own. */
static int32_t guess_place(struct direct *d, int row, int s)
{
    const struct forward_lane lane = {.n_tokens = s + 1};
    const struct forward_features given = {.target = d->rows + (size_t)row * (size_t)d->width,
                                           .n_target = 1};
    return best_of(d, &lane, &given);
}

/* Guess s from the rows up to one: a pass of these rows and of s masks. */
static int32_t guess_masks(struct direct *d, int text, int row, int s)
{
    int32_t tokens[N_TOKENS];
    size_t width = (size_t)d->width;
    uint16_t *rows = malloc((size_t)(row + 1 + s) * width * sizeof *rows);
    memcpy(rows, d->rows, (size_t)(row + 1) * width * sizeof *rows);
    memcpy(tokens, ids[text] + 1, (size_t)(row + 1) * sizeof *tokens);
    for (int i = row + 1; i < row + 1 + s; i++) {
        memcpy(rows + (size_t)i * width, checkpoint_head_mask(d->ck), width * sizeof *rows);
        tokens[i] = checkpoint_head(d->ck)->mask_token_id;
    }
    const struct forward_lane lane = {
        .n_tokens = row + 1 + s, .tokens = tokens, .blocks = d->blocks};
    const struct forward_features given = {.target = rows, .n_target = row + 1 + s};
    int32_t id = best_of(d, &lane, &given);
    free(rows);
    return id;
}

/* Guess s from the rows up to one: of a block after them, chained to the text. */
static int32_t guess_block(struct direct *d, int text, int row, int s)
{
    int32_t tokens[HEAD_BLOCK_MAX] = {ids[text][row + 1]};
    struct select_item item;
    int n_items;
    const int first = 0;
    for (int i = 1; i < d->block->size; i++) {
        tokens[i] = checkpoint_head(d->ck)->mask_token_id;
    }
    const struct forward_lane lane = {
        .n_tokens = d->block->size, .tokens = tokens, .blocks = d->blocks};
    const struct forward_features given = {.target = d->rows, .n_target = row + 1};
    const struct forward_row wanted = {0, head_block_row(d->block, s)};
    CHECK_OK(model_forward_head(d->model, &lane, &given, 1, &wanted, 1, &err));
    if (d->block->rank > 0) {
        CHECK_OK(model_chain_rows(d->model, &first, &ids[text][row + 1 + s], 1, &err));
    }
    arena_reset(&d->arena);
    CHECK_OK(model_best(d->model, 0, 1, &d->arena, &item, &n_items, &err));
    return item.id;
}

static void gather(struct direct *d, const struct truth *truth, int text)
{
    const struct feature_wish *wish = head_proof_wish(proof);
    int n_columns = feature_wish_columns(wish);
    for (int i = 0; i < N_TOKENS; i++) {
        for (int c = 0; c < d->width / DIM; c++) {
            int column = truth->normed ? wish->n : feature_wish_column(wish, truth->boundaries[c]);
            ck_assert_int_ge(column, 0);
            memcpy(d->rows + (size_t)i * (size_t)d->width + (size_t)c * DIM,
                   features[text] + ((size_t)i * (size_t)n_columns + (size_t)column) * DIM,
                   DIM * sizeof *d->rows);
        }
    }
}

/* The target says what the head guesses first. */
static void make_best(const char *folder, const struct truth *truth)
{
    struct direct d = {0};
    open_direct(&d, folder, truth);
    for (int t = 0; t < N_TEXTS; t++) {
        gather(&d, truth, t);
        for (int i = 0; i + 1 < N_TOKENS; i++) {
            best[t][i + 1] = d.block->size > 0
                                 ? guess_block(&d, t, i, 0)
                                 : pass(&d, t, i, 1, d.rows + (size_t)i * (size_t)d.width, false);
        }
    }
    close_direct(&d);
}

static void run(void)
{
    bool is_done = false;
    CHECK_OK(head_proof_begin(proof, texts, N_TEXTS, &err));
    while (!is_done) {
        CHECK_OK(head_proof_next(proof, &is_done, &err));
    }
}

static void set_up(void)
{
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    how.device = device ? device : "cpu";
    CHECK_OK(backend_open(&backend, &how, &err));
    CHECK_OK(checkpoint_open(&target, MODELS "llama_untied", &err));
}

static void tear_down(void)
{
    head_proof_close(proof);
    for (int t = 0; t < N_TEXTS; t++) {
        free(features[t]);
    }
    checkpoint_close(target);
    backend->ops->close(backend);
    remove_folder();
}

/* ---- readings ---- */

#define IDS(...)   "{\"eagle_aux_hidden_state_layer_ids\": [" #__VA_ARGS__ "]}"
#define LATER(...) "\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [" #__VA_ARGS__ "]}"

static const struct {
    const char *head, *keys, *name; /* name: of the reading that is to be taken; NULL: none fits */
    struct truth truth;
} cases[] = {
    {"eagle3_flat", IDS(1, 3, 6), "as written", {3, {1, 3, 6}, false, HEAD_NO}},
    {"eagle3_flat", IDS(0, 2, 5), "one layer later", {3, {1, 3, 6}, false, HEAD_NO}},
    {"eagle3_flat", IDS(0, 3, 6), "default", {3, {2, 4, 5}, false, HEAD_NO}},
    {"eagle3_flat",
     "{\"eagle_aux_hidden_state_layer_ids\": null, " LATER(0, 2, 5) "}",
     "one layer later",
     {3, {1, 3, 6}, false, HEAD_NO}},
    {"eagle3_flat",
     "{\"eagle_aux_hidden_state_layer_ids\": null, " LATER(1, 3, 6) "}",
     "as written",
     {3, {1, 3, 6}, false, HEAD_NO}},
    /* norm_before_residual is false where it is missing, and wrong here */
    {"eagle3_flat", IDS(1, 3, 6), "as written", {3, {1, 3, 6}, false, HEAD_YES}},
    {"eagle3_flat",
     "{\"norm_before_residual\": true, \"eagle_aux_hidden_state_layer_ids\": [0, 2, 5]}",
     "one layer later",
     {3, {1, 3, 6}, false, HEAD_NO}},
    {"eagle3_qwen3",
     "{\"norm_before_residual\": null}",
     "as written",
     {3, {0, 1, 3}, false, HEAD_YES}},
    {"eagle3_qwen3",
     "{\"norm_before_residual\": null}",
     "one layer later",
     {3, {1, 2, 4}, false, HEAD_NO}},
    {"mimo", "{}", "normed", {0, {0}, true, HEAD_AS_STORED}},
    {"mimo", "{}", "last layer", {1, {N_LAYERS}, false, HEAD_AS_STORED}},
    {"eagle3_parallel", "{}", "one layer later", {3, {1, 2, 4}, false, HEAD_YES}},
    {"medusa_listed", "{}", "normed", {0, {0}, true, HEAD_AS_STORED}},
    {"blockwise", "{}", "last layer", {1, {N_LAYERS}, false, HEAD_AS_STORED}},
    {"dflash_flat", "{}", "one layer later", {3, {1, 2, 3}, false, HEAD_AS_STORED}},
    {"dflash_flat", "{}", "as written", {3, {0, 1, 2}, false, HEAD_AS_STORED}},
    {"dspark_flat", "{}", "as written", {3, {0, 2, 4}, false, HEAD_AS_STORED}},
    {"dspark_speculators", "{}", "as written", {3, {1, 2, 4}, false, HEAD_AS_STORED}},
    /* features that no reading has */
    {"eagle3_flat", IDS(0, 2, 5), NULL, {3, {0, 1, 2}, false, HEAD_NO}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(the_right_reading_is_taken)
{
    char text[HEAD_TRIAL_BYTES];
    const struct truth *truth = &cases[_i].truth;
    make_folder(cases[_i].head, cases[_i].keys);
    open_proof(1);
    make_texts();
    make_best(dir, truth);
    if (!cases[_i].name) memset(best, 0, sizeof best);
    run();
    const struct head_table *table = head_proof_table(proof);
    for (int i = 0; i < table->n_trials; i++) {
        printf("%s%s\n", head_trial_show(table, i, text), i == table->chosen ? "; taken" : "");
    }
    ck_assert_int_eq(table->n_starts, N_TEXTS * (N_TOKENS - HEAD_TABLE_GUESSES - N_BEGIN));
    if (!cases[_i].name) {
        ck_assert_int_eq(table->chosen, 0);
        ck_assert_int_eq(head_table_verdict(table), HEAD_WRONG);
        return;
    }
    const struct head_trial *taken = &table->trials[table->chosen];
    ck_assert_str_eq(taken->reading.name, cases[_i].name);
    ck_assert(!truth->keeps_normed || taken->keeps_normed == (truth->keeps_normed == HEAD_YES));
    ck_assert_int_eq(taken->n_right[0], table->n_starts);
    ck_assert_int_eq(head_table_verdict(table), HEAD_PROVEN);
    for (int i = 0; i < table->n_trials; i++) {
        if (i != table->chosen) ck_assert_int_lt(table->trials[i].n_right[0], taken->n_right[0]);
    }
}
END_TEST

/* Guess s of a start by itself, on KV that nothing else has written since; the guesses before it
 * have just been made. */
static int32_t guess_directly(struct direct *d, int text, int row, int s)
{
    uint16_t output[DIM];
    int n_places = checkpoint_head(d->ck)->places.n;
    if (n_places) return s < n_places ? guess_place(d, row, s) : -1;
    if (d->block->size > 0) return guess_block(d, text, row, s);
    if (checkpoint_head_mask(d->ck)) return guess_masks(d, text, row, s);
    if (s == 0) return pass(d, text, 0, row + 1, d->rows, false);
    memcpy(output, model_features(d->model, 0, s == 1 ? row : 0, 1), sizeof output);
    return pass(d, text, row + s, 1, output, true);
}

static void count_directly(const struct truth *truth, int every, int n_right[HEAD_TABLE_GUESSES])
{
    struct direct d = {0};
    open_direct(&d, dir, truth);
    for (int t = 0; t < N_TEXTS; t++) {
        gather(&d, truth, t);
        for (int row = N_BEGIN; row + HEAD_TABLE_GUESSES < N_TOKENS; row += every) {
            for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
                n_right[s] += guess_directly(&d, t, row, s) == best[t][row + s + 1];
            }
        }
    }
    close_direct(&d);
}

/* The target says what later guesses of the head are, at some places. */
static void make_later_best(const struct truth *truth)
{
    struct direct d = {0};
    open_direct(&d, dir, truth);
    for (int t = 0; t < N_TEXTS; t++) {
        gather(&d, truth, t);
        for (int row = N_BEGIN; row + HEAD_TABLE_GUESSES < N_TOKENS; row += 11) {
            for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
                int32_t id = guess_directly(&d, t, row, s);
                if (id >= 0) best[t][row + s + 1] = id;
            }
        }
    }
    close_direct(&d);
}

static const struct {
    const char *head;
    int every, n_guesses, n_places;
    bool is_parallel;
    struct truth truth;
} counted[] = {
    {"eagle3_flat", 1, 5, 0, false, {3, {1, 2, 3}, false, HEAD_NO}},
    {"eagle3_flat", 7, 5, 0, false, {3, {1, 2, 3}, false, HEAD_NO}},
    {"eagle3_parallel", 1, 5, 0, true, {3, {0, 1, 3}, false, HEAD_YES}},
    {"eagle3_parallel", 3, 5, 0, true, {3, {0, 1, 3}, false, HEAD_YES}},
    {"medusa_listed", 1, 2, 2, true, {0, {0}, true, HEAD_AS_STORED}},
    {"blockwise", 1, 3, 3, true, {0, {0}, true, HEAD_AS_STORED}},
    {"blockwise", 4, 3, 3, true, {0, {0}, true, HEAD_AS_STORED}},
    {"dflash_flat", 1, 5, 7, true, {3, {1, 2, 3}, false, HEAD_AS_STORED}},
    {"dflash_band", 5, 5, 7, true, {3, {1, 2, 3}, false, HEAD_AS_STORED}},
    {"dspark_flat", 1, 5, 7, true, {3, {1, 3, 5}, false, HEAD_AS_STORED}},
    {"dspark_speculators", 3, 5, 5, true, {3, {1, 2, 4}, false, HEAD_AS_STORED}},
};
enum { N_COUNTED = sizeof counted / sizeof *counted };

START_TEST(counts_are_those_of_every_start_by_itself)
{
    char text[HEAD_TRIAL_BYTES];
    const struct truth *truth = &counted[_i].truth;
    make_folder(counted[_i].head, "{}");
    open_proof(counted[_i].every);
    make_texts();
    make_best(dir, truth);
    make_later_best(truth);
    run();
    const struct head_table *table = head_proof_table(proof);
    int n_right[HEAD_TABLE_GUESSES] = {0};
    count_directly(truth, counted[_i].every, n_right);
    for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
        ck_assert_int_eq(table->trials[0].n_right[s], n_right[s]);
        ck_assert_int_eq(n_right[s] > 0, s < counted[_i].n_guesses);
    }
    ck_assert_int_eq(table->is_parallel, counted[_i].is_parallel);
    ck_assert_int_eq(table->n_places, counted[_i].n_places);
    const char *shown = head_trial_show(table, 0, text);
    int n_shown = 0;
    for (const char *at = strchr(shown, ':'); (at = strchr(at, '.')); at++) {
        n_shown++;
    }
    ck_assert_int_eq(n_shown, counted[_i].n_guesses);
    for (int n_rows = 1; n_rows <= HEAD_PROOF_ROWS; n_rows *= 8) {
        double us = 0;
        CHECK_OK(head_proof_time(proof, n_rows, &us, &err));
        ck_assert(us > 0);
    }
}
END_TEST

START_TEST(the_digest_tells_heads_and_what_their_files_say_apart)
{
    uint64_t digests[4];
    static const char *const keys[] = {"{}", "{}", IDS(0, 2, 5),
                                       "{\"norm_before_residual\": true}"};
    for (int i = 0; i < 4; i++) {
        make_folder("eagle3_flat", keys[i]);
        open_proof(1);
        digests[i] = head_proof_digest(proof);
        if (i == 3) break;
        head_proof_close(proof);
        remove_folder();
    }
    ck_assert(digests[0] == digests[1]);
    ck_assert(digests[0] != digests[2] && digests[0] != digests[3] && digests[2] != digests[3]);
}
END_TEST

START_TEST(texts_that_are_too_short_are_refused)
{
    make_folder("eagle3_flat", "{}");
    open_proof(1);
    make_texts();
    texts[0].n = texts[1].n = N_BEGIN + HEAD_TABLE_GUESSES;
    CHECK_ERR(head_proof_begin(proof, texts, N_TEXTS, &err), ERR_ARGUMENT, "too short");
    texts[0].n = N_TOKENS + 1;
    CHECK_ERR(head_proof_begin(proof, texts, N_TEXTS, &err), ERR_ARGUMENT, "at most 150");
}
END_TEST

/* ---- chance ---- */

enum { N_DRAWN = 250, N_WORLDS = 2000 };

/* Worlds in which the second of four readings is taken, which is better than the first one in this
 * share of the starts. The others are worse. */
static int count_taken(double better)
{
    struct head_table table = {.n_trials = 4, .n_starts = N_DRAWN};
    static const uint8_t right[N_DRAWN];
    float scores[4][N_DRAWN];
    int n = 0;
    for (uint32_t world = 0; world < N_WORLDS; world++) {
        for (uint32_t i = 0; i < N_DRAWN; i++) {
            uint32_t at = (world * N_DRAWN + i) * 2;
            float size = (float)draw(at);
            scores[0][i] = -1;
            scores[1][i] = draw(at + 1) < better ? -1 + size : -1 - size;
            scores[2][i] = scores[3][i] = -9;
        }
        for (int i = 0; i < 4; i++) {
            head_table_count(&table, i, right, scores[i], scores[0]);
        }
        head_table_choose(&table);
        n += table.chosen == 1;
    }
    printf("better in %.2f: taken in %d of %d worlds\n", better, n, N_WORLDS);
    return n;
}

START_TEST(readings_one_layer_apart_are_told_apart)
{
    make_folder("eagle3_flat", "{}");
    ck_assert_int_gt(count_taken(0.62), N_WORLDS * 4 / 5);
}
END_TEST

START_TEST(chance_changes_no_reading)
{
    make_folder("eagle3_flat", "{}");
    ck_assert_int_le(count_taken(0.5), N_WORLDS / 100);
    ck_assert_int_eq(count_taken(0.4), 0);
}
END_TEST

START_TEST(doubts_ask_for_more)
{
    static const uint8_t right[20];
    float first[20], second[20];
    make_folder("eagle3_flat", "{}");
    for (int n_better = 0; n_better <= 20; n_better++) {
        struct head_table table = {.n_trials = 2, .n_starts = 20};
        for (int i = 0; i < 20; i++) {
            first[i] = i == 19 ? -INFINITY : -2; /* a token that it never guesses */
            second[i] = i < n_better ? -1 : i == 19 ? -INFINITY : -2.5f;
        }
        head_table_count(&table, 0, right, first, first);
        head_table_count(&table, 1, right, second, first);
        head_table_choose(&table);
        /* of 19: 17 have the chance 0.0004, 16 have 0.002, 15 have 0.0096, 14 have 0.03, 13 0.08,
         * 12 have 0.18 and 11 have 0.32 */
        ck_assert_int_eq(table.chosen, n_better >= 15);
        ck_assert_int_eq(table.is_undecided, n_better >= 12 && n_better < 15);
    }
}
END_TEST

START_TEST(shares_have_their_verdicts)
{
    static const struct {
        int n_right;
        enum head_verdict verdict;
    } shares[] = {{9, HEAD_WRONG}, {10, HEAD_WEAK}, {59, HEAD_WEAK}, {60, HEAD_PROVEN}};
    make_folder("eagle3_flat", "{}");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct head_table table = {.n_trials = 1, .n_starts = 200};
        uint8_t right[200] = {0};
        static const float scores[200];
        memset(right, 1, (size_t)shares[i].n_right);
        right[0] = 7;
        head_table_count(&table, 0, right, scores, scores);
        head_table_choose(&table);
        ck_assert_int_eq(head_table_verdict(&table), shares[i].verdict);
        ck_assert(head_trial_alpha(&table, 0, 1) == 1.0 / shares[i].n_right);
        ck_assert(head_trial_alpha(&table, 0, 2) == 1);
        ck_assert(head_trial_agreement(&table, 0, 1) == 1.0 / 200);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_proof");
    TCase *tcase = tcase_create("proofs");
    tcase_set_timeout(tcase, 110);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, the_right_reading_is_taken, 0, N_CASES);
    tcase_add_loop_test(tcase, counts_are_those_of_every_start_by_itself, 0, N_COUNTED);
    tcase_add_test(tcase, the_digest_tells_heads_and_what_their_files_say_apart);
    tcase_add_test(tcase, texts_that_are_too_short_are_refused);
    tcase_add_test(tcase, readings_one_layer_apart_are_told_apart);
    tcase_add_test(tcase, chance_changes_no_reading);
    tcase_add_test(tcase, doubts_ask_for_more);
    tcase_add_test(tcase, shares_have_their_verdicts);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
