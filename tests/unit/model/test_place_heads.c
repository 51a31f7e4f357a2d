/* ctest: labels=quick,bits libs=model timeout=300 */
/* Heads that guess several places from one feature, against the code of their formats
 * (tests/oracle/place_heads_golden.py), and the one arithmetic: the logits of a place have the
 * same bits beside other lanes, with fewer or more places, with any number of threads and any
 * kernels. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "comm/comm.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/open.h"
#include "model/checkpoint/head.h"
#include "model/model.h"
#include "model/places.h"
#include "tests/support/head_folder.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { N_HEADS = 5, LANES_MAX = 9, PLACES_MOST = 8, COLUMNS = 320, ARENA_BYTES = 1 << 16 };

static const char *const heads[N_HEADS] = {"blockwise", "medusa", "medusa_listed",
                                           "medusa_repeated", "medusa_shared"};

struct rig {
    struct checkpoint *target, *ck;
    struct backend *backend;
    struct model *model;
    int n_rows, n_places, dim;
    double tolerance_rms;
    struct file_view features, logits;
};

static void open_model(struct rig *rig, const char *kernels, int n_threads, const char *pack_cache)
{
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options how = {.device = device ? device : "cpu",
                                        .weights = "bf16",
                                        .kernels = kernels,
                                        .n_threads = n_threads,
                                        .pack_cache = pack_cache,
                                        .no_graphs = getenv("OUTRIDER_TEST_NO_GRAPHS") != NULL};
    const struct model_options options = {.max_tokens = LANES_MAX * PLACES_MOST,
                                          .max_rows = LANES_MAX * PLACES_MOST,
                                          .max_lanes = LANES_MAX};
    CHECK_OK(backend_open(&rig->backend, &how, &err));
    CHECK_OK(model_open(&rig->model, rig->ck, comm_single(), rig->backend, &options, &err));
    CHECK_OK(model_keep_output(rig->model, &err));
    ck_assert_uint_eq(model_kv_bytes(rig->model), 0);
}

static void close_model(struct rig *rig)
{
    model_close(rig->model);
    rig->backend->ops->close(rig->backend);
}

static void open_rig(struct rig *rig, const char *name)
{
    char path[512], *text;
    size_t len;
    json_t *root;
    *rig = (struct rig){0};
    snprintf(path, sizeof path, PLACE_HEADS "%s/golden.json", name);
    CHECK_OK(file_read_text(&text, &len, path, 1 << 16, &err));
    CHECK_OK(json_parse_text(&root, text, len, path, &err));
    free(text);
    rig->n_rows = (int)json_integer_value(json_object_get(root, "rows"));
    rig->n_places = (int)json_integer_value(json_object_get(root, "places"));
    rig->tolerance_rms = json_number_value(json_object_get(root, "tolerance_rms"));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "columns")), COLUMNS);
    const char *target = json_string_value(json_object_get(root, "target"));
    if (target) {
        snprintf(path, sizeof path, MODELS "%s", target);
        CHECK_OK(checkpoint_open(&rig->target, path, &err));
    }
    json_decref(root);
    const struct head_options options = {.target = rig->target};
    snprintf(path, sizeof path, PLACE_HEADS "%s", name);
    CHECK_OK(checkpoint_open_head(&rig->ck, path, &options, &err));
    rig->dim = checkpoint_config(rig->ck)->dim;
    ck_assert_int_eq(checkpoint_head(rig->ck)->places.n, rig->n_places);
    ck_assert_int_eq(checkpoint_head(rig->ck)->n_columns, COLUMNS);
    snprintf(path, sizeof path, PLACE_HEADS "%s/features.bf16", name);
    CHECK_OK(file_map(&rig->features, path, &err));
    ck_assert_uint_eq(rig->features.size_bytes, (size_t)rig->n_rows * (size_t)rig->dim * 2);
    snprintf(path, sizeof path, PLACE_HEADS "%s/logits.f32", name);
    CHECK_OK(file_map(&rig->logits, path, &err));
    ck_assert_uint_eq(rig->logits.size_bytes,
                      (size_t)rig->n_rows * (size_t)rig->n_places * COLUMNS * sizeof(float));
    open_model(rig, "auto", 1, NULL);
}

static void close_rig(struct rig *rig)
{
    close_model(rig);
    checkpoint_close(rig->ck);
    checkpoint_close(rig->target);
    file_unmap(&rig->features);
    file_unmap(&rig->logits);
}

static const uint16_t *feature(const struct rig *rig, int row)
{
    const void *rows = rig->features.data;
    return (const uint16_t *)rows + (size_t)row * (size_t)rig->dim;
}

/* Lane i has the feature of row i, and n_places[i] places. Rows are asked for from the last lane's
 * last place to the first one's first. Returns their number. */
static int forward(struct rig *rig, const int *n_places, int n_lanes)
{
    struct forward_lane lanes[LANES_MAX];
    struct forward_features features[LANES_MAX];
    struct forward_row rows[LANES_MAX * PLACES_MOST];
    int n = 0;
    for (int i = n_lanes; i-- > 0;) {
        lanes[i] = (struct forward_lane){.n_tokens = n_places[i]};
        features[i] =
            (struct forward_features){.target = feature(rig, i % rig->n_rows), .n_target = 1};
        for (int place = n_places[i]; place-- > 0;) {
            rows[n++] = (struct forward_row){i, place};
        }
    }
    CHECK_OK(model_forward_head(rig->model, lanes, features, n_lanes, rows, n, &err));
    return n;
}

/* The logits of all places of one row alone: [n_places][COLUMNS]. */
static void forward_alone(struct rig *rig, int row, float *logits)
{
    const struct forward_lane lane = {.n_tokens = rig->n_places};
    const struct forward_features features = {.target = feature(rig, row), .n_target = 1};
    struct forward_row rows[PLACES_MOST];
    for (int place = 0; place < rig->n_places; place++) {
        rows[place] = (struct forward_row){0, place};
    }
    CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, rows, rig->n_places, &err));
    for (int place = 0; place < rig->n_places; place++) {
        const float *got = model_logits(rig->model, place);
        ck_assert_ptr_nonnull(got);
        memcpy(logits + (size_t)place * COLUMNS, got, COLUMNS * sizeof *logits);
    }
}

START_TEST(logits_are_those_of_the_formats_own_code)
{
    struct rig rig;
    float got[PLACES_MOST * COLUMNS];
    double sum = 0;
    open_rig(&rig, heads[_i]);
    size_t n = (size_t)rig.n_places * COLUMNS;
    for (int row = 0; row < rig.n_rows; row++) {
        forward_alone(&rig, row, got);
        for (size_t i = 0; i < n; i++) {
            float want;
            memcpy(&want, rig.logits.data + ((size_t)row * n + i) * sizeof want, sizeof want);
            double d = (double)got[i] - (double)want;
            sum += d * d;
        }
    }
    double rms = sqrt(sum / (double)((size_t)rig.n_rows * n));
    printf("%-16s rms error %.5f, its own code in bf16 %.5f\n", heads[_i], rms, rig.tolerance_rms);
    ck_assert_msg(rms > 0 && rms <= rig.tolerance_rms, "%s: rms error %g exceeds %g", heads[_i],
                  rms, rig.tolerance_rms);
    close_rig(&rig);
}
END_TEST

START_TEST(every_golden_head_is_in_the_list)
{
    struct dirent *entry;
    int n = 0;
    DIR *folder = opendir(PLACE_HEADS);
    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder))) {
        n += entry->d_name[0] != '.';
    }
    closedir(folder);
    ck_assert_int_eq(n, N_HEADS);
}
END_TEST

/* Compares the rows of a step of lanes, in the order of `forward`, with those of each row alone. */
static void compare(struct rig *rig, const float *want, const int *n_places, int n_lanes)
{
    int n = 0;
    forward(rig, n_places, n_lanes);
    for (int i = n_lanes; i-- > 0;) {
        for (int place = n_places[i]; place-- > 0;) {
            size_t at = (size_t)(i % rig->n_rows * rig->n_places + place) * COLUMNS;
            const float *got = model_logits(rig->model, n++);
            ck_assert_ptr_nonnull(got);
            ck_assert_msg(!memcmp(got, want + at, COLUMNS * sizeof *got), "lane %d, place %d", i,
                          place);
        }
    }
}

/* Each step comes several times, because a device records what it repeats. */
START_TEST(bits_do_not_depend_on_lanes_places_threads_and_kernels)
{
    static const int turns[][LANES_MAX] = {
        {1}, {2, 2, 1}, {2, 1, 2, 2, 1, 2, 1, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1, 1}};
    static const int n_lanes[] = {1, 3, 9, 9};
    struct rig rig;
    open_rig(&rig, heads[_i]);
    size_t n = (size_t)rig.n_places * COLUMNS;
    float *want = malloc((size_t)rig.n_rows * n * sizeof *want);
    for (int row = 0; row < rig.n_rows; row++) {
        forward_alone(&rig, row, want + (size_t)row * n);
    }
    for (int turn = 0; turn < 12; turn++) {
        compare(&rig, want, turns[turn % 4], n_lanes[turn % 4]);
    }
    for (int i = 0; kernels_name(i); i++) {
        const struct kernels *kernels;
        if (kernels_find(&kernels, kernels_name(i), &err)) continue;
        close_model(&rig);
        open_model(&rig, kernels->name, i % 2 ? 1 : 3, NULL);
        compare(&rig, want, turns[2], n_lanes[2]);
    }
    free(want);
    close_rig(&rig);
}
END_TEST

/* On a CPU. A device computes the most places of any lane for all of them. */
START_TEST(lanes_have_rows_for_the_places_alone_that_they_want)
{
    static const int wanted[] = {1, 3, 0, 2, 3, 1}, n_lanes = 6, n_rows = 10, counts[] = {5, 3, 2};
    static struct places p;
    struct forward_lane lanes[6];
    bool is_taken[64] = {false};
    struct rig rig;
    open_rig(&rig, "medusa");
    bool is_host = rig.backend->ops->is_host;
    CHECK_OK(places_open(&p, checkpoint_head(rig.ck), n_lanes, rig.backend, &err));
    for (int i = 0; i < n_lanes; i++) {
        lanes[i] = (struct forward_lane){.n_tokens = wanted[i]};
    }
    places_begin(&p, rig.backend, lanes, n_lanes);
    ck_assert_int_eq(p.n_places, 3);
    for (int place = 0; place < p.n_places; place++) {
        ck_assert_int_eq(p.counts[place], is_host ? counts[place] : n_lanes);
        for (int i = 0; i < n_lanes; i++) {
            int row = places_row(&p, i, place);
            if (place >= wanted[i]) continue;
            ck_assert(row >= p.first[place] && row < p.first[place] + p.counts[place]);
            ck_assert(row < p.first[place + 1] && !is_taken[row]);
            is_taken[row] = true;
        }
    }
    if (is_host) ck_assert_int_eq(p.first[p.n_places], n_rows);
    places_close(&p, rig.backend);
    close_rig(&rig);
}
END_TEST

START_TEST(best_ids_are_those_of_the_places_logits)
{
    enum { BEST = 4 };
    struct rig rig;
    struct arena arena;
    struct select_item items[PLACES_MOST * BEST];
    struct slice_row answers[PLACES_MOST * SLICES_MAX];
    struct row_query queries[PLACES_MOST];
    int rows[PLACES_MOST], n_items[PLACES_MOST];
    float logits[PLACES_MOST * COLUMNS];
    const struct row_wish wish = {.n_best = 1};
    open_rig(&rig, heads[_i]);
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
    forward_alone(&rig, 2, logits);
    for (int place = 0; place < rig.n_places; place++) {
        rows[place] = place;
        queries[place] = (struct row_query){place, &wish};
    }
    CHECK_OK(model_best_rows(rig.model, rows, rig.n_places, BEST, &arena, items, n_items, &err));
    CHECK_OK(model_answer(rig.model, queries, rig.n_places, &arena, answers, &err));
    int n_slices = model_shard(rig.model)->n_slices;
    for (int place = 0; place < rig.n_places; place++) {
        const float *row = logits + (size_t)place * COLUMNS;
        int best = 0;
        float best_answer = -INFINITY;
        for (int i = 1; i < COLUMNS; i++) {
            if (row[i] > row[best]) best = i;
        }
        ck_assert_int_eq(n_items[place], BEST);
        ck_assert_int_eq(items[place * BEST].id, best);
        for (int s = 0; s < n_slices; s++) {
            const struct slice_row *slice = &answers[place * n_slices + s];
            ck_assert_int_eq(slice->code, 0);
            if (slice->n_best == 0) continue; /* of so few ids it has none */
            if (slice->best_logits[0] > best_answer) best_answer = slice->best_logits[0];
        }
        ck_assert(best_answer == row[best]);
    }
    arena_close(&arena);
    close_rig(&rig);
}
END_TEST

START_TEST(packed_weights_from_disk_give_the_same_bits)
{
    struct rig rig;
    float want[PLACES_MOST * COLUMNS], got[PLACES_MOST * COLUMNS];
    char folder[] = "/tmp/outrider-places-XXXXXX", path[512];
    struct dirent *entry;
    if (getenv("OUTRIDER_TEST_DEVICE")) return; /* they are kept for the CPU alone */
    ck_assert_ptr_nonnull(mkdtemp(folder));
    open_rig(&rig, heads[_i]);
    uint64_t fingerprint = model_fingerprint(rig.model);
    forward_alone(&rig, 1, want);
    for (int time = 0; time < 2; time++) {
        close_model(&rig);
        open_model(&rig, "auto", 2, folder);
        forward_alone(&rig, 1, got);
        ck_assert_mem_eq(got, want, (size_t)rig.n_places * COLUMNS * sizeof *got);
        ck_assert_uint_eq(model_fingerprint(rig.model), fingerprint);
        const struct pack_cache_report *report = model_pack_report(rig.model);
        ck_assert_str_eq(pack_cache_state_name(report->state), time ? "hit" : "written");
    }
    close_rig(&rig);
    DIR *files = opendir(folder);
    while ((entry = readdir(files))) {
        snprintf(path, sizeof path, "%s/%.200s", folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    closedir(files);
    rmdir(folder);
}
END_TEST

START_TEST(a_head_without_its_targets_lm_head_is_no_model)
{
    static const char *const lacking[] = {"blockwise", "medusa_shared"};
    const struct model_options options = {.max_tokens = 4, .max_rows = 4, .max_lanes = 1};
    struct rig rig;
    open_rig(&rig, "medusa");
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        struct checkpoint *ck;
        struct model *model = NULL;
        char path[512];
        snprintf(path, sizeof path, PLACE_HEADS "%s", lacking[i]);
        CHECK_OK(checkpoint_open_head(&ck, path, NULL, &err));
        CHECK_ERR(model_open(&model, ck, comm_single(), rig.backend, &options, &err), ERR_ARGUMENT,
                  "has no lm_head.weight, which it shares with its target");
        checkpoint_close(ck);
    }
    close_rig(&rig);
}
END_TEST

START_TEST(elements_that_are_no_numbers_are_refused)
{
    static const char *const names[] = {"0.0.linear.bias", "1.0.linear.weight"};
    const struct model_options options = {.max_tokens = 4, .max_rows = 4, .max_lanes = 1};
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        struct checkpoint *ck;
        struct model *model = NULL;
        open_rig(&rig, "medusa_repeated");
        take_apart("medusa_repeated");
        bytes_of(names[i])[8] = 0xc0;
        bytes_of(names[i])[9] = 0x7f;
        put_together();
        CHECK_OK(checkpoint_open_head(&ck, dir, NULL, &err));
        CHECK_ERR(model_open(&model, ck, comm_single(), rig.backend, &options, &err), ERR_FORMAT,
                  names[i]);
        model_close(model);
        checkpoint_close(ck);
        clear_up();
        close_rig(&rig);
    }
}
END_TEST

/* A blockwise head of 2 places whose weights are zeros. */
static void write_zeros(int dim)
{
    enum { WIDTH = 16, PLACES = 2 };
    static const char text[] = "{\"model_type\": \"blockwise\", \"block_size\": 3}";
    const struct {
        const char *name;
        int rows, cols; /* cols 0: a vector */
    } tensors[] = {{"hidden.weight", WIDTH, dim},
                   {"hidden.bias", WIDTH, 0},
                   {"output.weight", PLACES * dim, WIDTH},
                   {"output.bias", PLACES * dim, 0}};
    char table[1024];
    size_t at = 0;
    json_t *root = json_object();
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        int rows = tensors[i].rows, cols = tensors[i].cols;
        size_t end = at + 2 * (size_t)rows * (size_t)(cols ? cols : 1);
        json_t *shape = cols ? json_pack("[ii]", rows, cols) : json_pack("[i]", rows);
        json_object_set_new(root, tensors[i].name,
                            json_pack("{ss so s[II]}", "dtype", "BF16", "shape", shape,
                                      "data_offsets", (json_int_t)at, (json_int_t)end));
        at = end;
    }
    size_t n = json_dumpb(root, table + 8, sizeof table - 8, JSON_COMPACT);
    for (int i = 0; i < 8; i++) {
        table[i] = (char)(n >> (8 * i));
    }
    uint8_t *zeros = calloc(at, 1);
    write_file(dir, "config.json", text, strlen(text), NULL, 0);
    write_file(dir, "model.safetensors", table, n + 8, zeros, at);
    free(zeros);
    json_decref(root);
}

/* A head that adds nothing to the feature has the target's own logits, by an lm_head that is lent:
 * one of a tied embedding, one after which logits are capped, and quantized ones. */
START_TEST(a_head_of_zeros_has_the_logits_of_its_target)
{
    enum { N_TOKENS = 5, VOCAB_MOST = 512 };
    static const struct {
        const char *target;
        bool is_quantized;
    } cases[] = {{"models/llama_tied", false},
                 {"models/llama_untied", false},
                 {"models/gemma2_softcap", false},
                 {"gguf/llama_wide_heads.q8_0.gguf", true},
                 {"gguf/qwen3_norm.q4_0.gguf", true}};
    static const int32_t tokens[N_TOKENS] = {1, 7, 30, 90, 4}, blocks[] = {1};
    const struct feature_wish wish = {.normed = true};
    struct rig target = {0}, head = {0};
    struct model_options options = {
        .n_kv_blocks = 2, .max_tokens = 8, .max_rows = 8, .max_lanes = 2};
    struct backend_options how = {.device = getenv("OUTRIDER_TEST_DEVICE"),
                                  .weights = "bf16",
                                  .kernels = "auto",
                                  .n_threads = 1};
    char path[512];
    float want[VOCAB_MOST];
    double error = 0, size = 0;
    if (!how.device) how.device = "cpu";
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s", cases[_i].target);
    CHECK_OK(checkpoint_open(&target.ck, path, &err));
    const struct model_config *cfg = checkpoint_config(target.ck);
    ck_assert_int_le(cfg->vocab_size, VOCAB_MOST);
    CHECK_OK(backend_open(&head.backend, &how, &err));
    how.weights = cases[_i].is_quantized ? NULL : "bf16";
    how.stored = cfg->stored;
    CHECK_OK(backend_open(&target.backend, &how, &err));
    CHECK_OK(model_open(&target.model, target.ck, comm_single(), target.backend, &options, &err));
    CHECK_OK(model_keep_features(target.model, &wish, &err));
    const struct forward_lane read = {.n_tokens = N_TOKENS, .tokens = tokens, .blocks = blocks};
    const struct forward_row last = {0, N_TOKENS - 1};
    CHECK_OK(model_forward(target.model, &read, 1, &last, 1, &err));
    size_t n = (size_t)cfg->vocab_size, dim = (size_t)cfg->dim;
    memcpy(want, model_logits(target.model, 0), n * sizeof *want);
    uint16_t *feature = malloc(dim * sizeof *feature);
    memcpy(feature, model_features(target.model, 0, N_TOKENS - 1, 1), dim * sizeof *feature);

    snprintf(dir, sizeof dir, "/tmp/outrider-heads-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    write_zeros(cfg->dim);
    const struct head_options lends = {.target = target.ck};
    CHECK_OK(checkpoint_open_head(&head.ck, dir, &lends, &err));
    CHECK_OK(model_open(&head.model, head.ck, comm_single(), head.backend, &options, &err));
    const struct forward_lane lane = {.n_tokens = 2};
    const struct forward_features features = {.target = feature, .n_target = 1};
    const struct forward_row rows[] = {{0, 0}, {0, 1}};
    CHECK_OK(model_forward_head(head.model, &lane, &features, 1, rows, 2, &err));
    for (int place = 0; place < 2; place++) {
        const float *got = model_logits(head.model, place);
        bool is_same = memcmp(got, want, n * sizeof *got) == 0;
        ck_assert_msg(is_same || cases[_i].is_quantized, "%s", cases[_i].target);
        for (size_t i = 0; i < n; i++) {
            error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
            size += (double)want[i] * (double)want[i];
        }
    }
    printf("%-34s relative error %.5f\n", cases[_i].target, sqrt(error / size));
    ck_assert(size > 0 && error <= 0.02 * 0.02 * size);
    free(feature);
    close_model(&head);
    close_model(&target);
    checkpoint_close(head.ck);
    checkpoint_close(target.ck);
    clear_up();
}
END_TEST

/* norm_part's functions, on rows that lie apart, against their definition. */
START_TEST(a_part_of_the_columns_takes_biases_and_a_function)
{
    enum { ROWS = 3, DIM = 48, STRIDE = 64 };
    static const enum part_function functions[] = {PART_AS_IS, PART_SILU, PART_RELU};
    struct backend *be;
    struct rig rig;
    float host[ROWS * STRIDE], bias[DIM], *x, *b;
    uint16_t *h;
    open_rig(&rig, "medusa");
    be = rig.backend;
    size_t bytes = (size_t)be->ops->capacity(be, ROWS) * STRIDE * sizeof *x;
    for (int i = 0; i < ROWS * STRIDE; i++) {
        host[i] = (float)(i % 41 - 20) * 0.75f;
    }
    for (int i = 0; i < DIM; i++) {
        bias[i] = (float)(i % 7 - 3) * 0.5f;
    }
    CHECK_OK(backend_buffer(be, &x, bytes, &err));
    CHECK_OK(backend_buffer(be, &h, bytes, &err));
    CHECK_OK(backend_buffer(be, &b, sizeof bias, &err));
    be->ops->upload(be, b, bias, sizeof bias);
    for (int turn = 0; turn < 6; turn++) {
        bool has_bias = turn % 2;
        enum part_function function = functions[turn / 2];
        const struct norm_part part = {.x = x,
                                       .x_stride = STRIDE,
                                       .bias = has_bias ? b : NULL,
                                       .function = function,
                                       .n = ROWS,
                                       .dim = DIM};
        be->ops->upload(be, x, host, sizeof host);
        be->ops->norm_part(be, &part);
        const float *got = be->ops->read(be, x, ROWS * STRIDE);
        for (int i = 0; i < ROWS * STRIDE; i++) {
            int column = i % STRIDE;
            double v = (double)host[i] + (has_bias && column < DIM ? (double)bias[column] : 0);
            if (column < DIM && function == PART_SILU) v = v / (1 + exp(-v));
            if (column < DIM && function == PART_RELU && v < 0) v = 0;
            ck_assert_msg(fabs((double)got[i] - v) <= 1e-5, "turn %d, element %d: %g, not %g", turn,
                          i, (double)got[i], v);
        }
    }
    be->ops->buffer_close(be, x, bytes);
    be->ops->buffer_close(be, h, bytes);
    be->ops->buffer_close(be, b, sizeof bias);
    close_rig(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("place_heads");
    TCase *tcase = tcase_create("golden heads of places");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, logits_are_those_of_the_formats_own_code, 0, N_HEADS);
    tcase_add_test(tcase, every_golden_head_is_in_the_list);
    tcase_add_loop_test(tcase, bits_do_not_depend_on_lanes_places_threads_and_kernels, 0, N_HEADS);
    tcase_add_test(tcase, lanes_have_rows_for_the_places_alone_that_they_want);
    tcase_add_loop_test(tcase, best_ids_are_those_of_the_places_logits, 0, N_HEADS);
    tcase_add_loop_test(tcase, packed_weights_from_disk_give_the_same_bits, 0, N_HEADS);
    tcase_add_test(tcase, a_head_without_its_targets_lm_head_is_no_model);
    tcase_add_test(tcase, elements_that_are_no_numbers_are_refused);
    tcase_add_loop_test(tcase, a_head_of_zeros_has_the_logits_of_its_target, 0, 5);
    tcase_add_test(tcase, a_part_of_the_columns_takes_biases_and_a_function);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
