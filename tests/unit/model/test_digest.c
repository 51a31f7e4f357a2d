/* ctest: labels=quick,threads libs=model,export timeout=120 */
/* The fingerprint of a model's bytes: it is the same for every number of ranks and every form of
 * the weights, any changed byte changes it, and a rank can digest what another one reads. */
#include <fcntl.h>

#include "model/backend/open.h"
#include "model/digest.h"
#include "model/model.h"
#include "tests/support/export_util.h"

enum { MODELS_MAX = 8, N_FLIPS = 40 };

/* A model loaded by n_ranks ranks, one after the other. */
struct loaded {
    struct checkpoint *ck;
    struct backend *be;
    struct comm comm[MODELS_MAX];
    struct model *models[MODELS_MAX];
    struct part_digest *tables; /* [n_ranks][n] */
    size_t n;
    int n_ranks;
};

static void load(struct loaded *l, const char *name, int n_ranks, const char *weights,
                 int n_threads, unsigned witnessed)
{
    *l = (struct loaded){.n_ranks = n_ranks};
    CHECK_OK(checkpoint_open(&l->ck, name, &err));
    const struct backend_options bo = {.device = "cpu",
                                       .weights = weights,
                                       .kernels = "auto",
                                       .n_threads = n_threads,
                                       .stored = checkpoint_config(l->ck)->stored};
    const struct model_options mo = {
        .n_kv_blocks = 1, .max_tokens = 1, .max_rows = 1, .max_lanes = 1, .witnessed = witnessed};
    CHECK_OK(backend_open(&l->be, &bo, &err));
    checkpoint_tensors(l->ck, &l->n);
    l->tables = calloc((size_t)n_ranks * l->n, sizeof *l->tables);
    for (int r = 0; r < n_ranks; r++) {
        l->comm[r] = *comm_single();
        l->comm[r].rank = r;
        l->comm[r].size = n_ranks;
        CHECK_OK(model_open(&l->models[r], l->ck, &l->comm[r], l->be, &mo, &err));
        memcpy(l->tables + (size_t)r * l->n, model_digests(l->models[r]), l->n * sizeof *l->tables);
    }
}

static void unload(struct loaded *l)
{
    for (int r = 0; r < l->n_ranks; r++) {
        model_close(l->models[r]);
    }
    l->be->ops->close(l->be);
    checkpoint_close(l->ck);
    free(l->tables);
}

static uint64_t fingerprint(const char *name, int n_ranks, const char *weights, int n_threads)
{
    struct loaded l;
    struct digest_conflict conflict;
    load(&l, name, n_ranks, weights, n_threads, 0);
    ck_assert(digest_ranks_agree(l.tables, n_ranks, l.n, &conflict));
    uint64_t found = digest_fingerprint(l.ck, l.tables, n_ranks);
    if (n_ranks == 1) ck_assert_uint_eq(model_fingerprint(l.models[0]), found);
    unload(&l);
    return found;
}

static uint64_t sampled_fingerprint(const char *name)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, name, &err));
    uint64_t found = checkpoint_fingerprint(ck);
    checkpoint_close(ck);
    return found;
}

/* Copies a model's folder to `work`, all tensors in one file. */
static void copy_model(const char *name, enum weight_form form)
{
    const struct export_options options = {.shard_bytes = 1 << 30, .form = form};
    struct export_result result;
    remove_folder(work);
    CHECK_OK(model_export(name, work, &options, &result, &err));
}

/* The file of tensors in `work`, and where its data begins. */
static int open_file(size_t *first, size_t *end)
{
    char path[PATH_BYTES + 32];
    uint64_t header;
    struct stat st;
    snprintf(path, sizeof path, "%s/model.safetensors", work);
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)pread(fd, &header, sizeof header, 0), (int)sizeof header);
    ck_assert_int_eq(fstat(fd, &st), 0);
    *first = sizeof header + header;
    *end = (size_t)st.st_size;
    return fd;
}

static void zero_bytes(size_t from, size_t n)
{
    size_t first, end;
    int fd = open_file(&first, &end);
    uint8_t *zeros = calloc(n, 1);
    ck_assert_uint_le(first + from + n, end);
    ck_assert_int_eq((int)pwrite(fd, zeros, n, (off_t)(first + from)), (int)n);
    free(zeros);
    close(fd);
}

static const char *const models[] = {TALES "target", GOLDEN "/qwen2_bias",
                                     GOLDEN "/qwen3_norm_bias", GOLDEN "/llama_untied"};
enum { N_MODELS = sizeof models / sizeof *models };

START_TEST(the_fingerprint_does_not_depend_on_ranks_threads_and_forms)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        struct checkpoint *ck;
        uint64_t one = fingerprint(models[i], 1, "bf16", 1);
        CHECK_OK(checkpoint_open(&ck, models[i], &err));
        int n_slices = config_slices(checkpoint_config(ck));
        for (int n = 1; n <= n_slices; n++) {
            if (!config_takes_ranks(checkpoint_config(ck), n)) continue;
            ck_assert_uint_eq(fingerprint(models[i], n, "bf16", 3), one);
        }
        checkpoint_close(ck);
        ck_assert_uint_eq(fingerprint(models[i], 1, "int8", 2), one);
        ck_assert_uint_eq(fingerprint(models[i], n_slices, "int4", 1), one);
        ck_assert_uint_ne(sampled_fingerprint(models[i]), one);
    }
    for (int n = 3; n <= 6; n += 3) {
        ck_assert_uint_eq(fingerprint("synthetic:tiny-6,seed=7", n, "bf16", 1),
                          fingerprint("synthetic:tiny-6,seed=7", 1, "bf16", 1));
    }
}
END_TEST

START_TEST(a_copy_of_a_model_has_its_fingerprint)
{
    copy_model(TALES "target", WEIGHTS_BF16);
    ck_assert_uint_eq(fingerprint(work, 2, "bf16", 1), fingerprint(TALES "target", 1, "bf16", 1));
}
END_TEST

/* Where a matrix begins among the data of `work`, and its bytes. */
static size_t place_of(const char *name, int n_rows, int n_cols, size_t *bytes)
{
    struct checkpoint *ck;
    struct weight weight, other;
    size_t n;
    CHECK_OK(checkpoint_open(&ck, work, &err));
    const struct tensor_spec *tensors = checkpoint_tensors(ck, &n);
    CHECK_OK(checkpoint_find(ck, name, n_rows, n_cols, &weight, &err));
    const uint8_t *begin = weight.data;
    for (size_t i = 0; i < n; i++) {
        const struct tensor_spec *spec = &tensors[i];
        CHECK_OK(checkpoint_find(ck, spec->name, spec->n_rows, spec->n_cols, &other, &err));
        if (other.data < begin) begin = other.data;
    }
    size_t place = (size_t)(weight.data - begin);
    *bytes = weight_data_bytes(&weight);
    checkpoint_close(ck);
    return place;
}

static const char up_3[] = "model.layers.3.mlp.up_proj.weight";

START_TEST(zeros_between_the_samples_are_noticed)
{
    enum { SAMPLE_BYTES = 256, N_GAPS = 7 };
    size_t bytes;
    copy_model(TALES "target", WEIGHTS_BF16);
    uint64_t sampled = sampled_fingerprint(work), all = fingerprint(work, 1, "bf16", 1);
    size_t at = place_of(up_3, 768, 256, &bytes), gap = (bytes - SAMPLE_BYTES) / N_GAPS;
    zero_bytes(at + SAMPLE_BYTES, gap - SAMPLE_BYTES); /* two of seven gaps: 28 % */
    zero_bytes(at + gap + SAMPLE_BYTES, gap - SAMPLE_BYTES);
    ck_assert_uint_eq(sampled_fingerprint(work), sampled);
    uint64_t damaged = fingerprint(work, 1, "bf16", 1);
    ck_assert_uint_ne(damaged, all);
    ck_assert_uint_eq(fingerprint(work, 4, "bf16", 1), damaged);
}
END_TEST

/* Every bit counts, wherever it is: in the embedding, a norm, a matrix, a scale. */
static void flip_bits(enum weight_form form, const char *weights)
{
    size_t first, end;
    copy_model(TALES "draft", form);
    uint64_t all = fingerprint(work, 1, weights, 1);
    for (size_t i = 0; i < N_FLIPS; i++) {
        uint8_t byte;
        int fd = open_file(&first, &end);
        off_t at = (off_t)(first + (end - first - 1) / (N_FLIPS - 1) * i);
        ck_assert_int_eq((int)pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1u << i % 8);
        ck_assert_int_eq((int)pwrite(fd, &byte, 1, at), 1);
        ck_assert_msg(fingerprint(work, i % 2 ? 1 : 2, weights, 1) != all, "byte %ld", (long)at);
        byte ^= (uint8_t)(1u << i % 8);
        ck_assert_int_eq((int)pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    ck_assert_uint_eq(fingerprint(work, 1, weights, 1), all);
}

START_TEST(every_changed_bit_changes_the_fingerprint)
{
    flip_bits(WEIGHTS_BF16, "bf16");
}
END_TEST

START_TEST(synthetic_models_differ_by_name)
{
    uint64_t one = fingerprint("synthetic:tiny,seed=1", 1, "bf16", 1);
    ck_assert_uint_eq(fingerprint("synthetic:tiny,seed=1", 2, "int8", 2), one);
    ck_assert_uint_ne(fingerprint("synthetic:tiny,seed=2", 1, "bf16", 1), one);
}
END_TEST

/* The witness of a rank digests what this rank reads, tensor by tensor. */
START_TEST(a_witness_finds_the_tensor_that_differs)
{
    struct loaded good, bad;
    for (size_t i = 0; i < N_MODELS; i++) {
        load(&good, models[i], 2, "bf16", 2, 3);
        for (int w = 0; w < 2; w++) {
            for (int r = 0; r < 2; r++) {
                const struct part_digest *seen = model_witnessed(good.models[w], r);
                ck_assert_uint_eq(
                    digest_witness_differs(good.tables + (size_t)r * good.n, seen, good.n), good.n);
            }
        }
        ck_assert_ptr_null(model_witnessed(good.models[0], 2));
        unload(&good);
    }
    copy_model(TALES "target", WEIGHTS_BF16);
    size_t bytes, at = place_of(up_3, 768, 256, &bytes);
    zero_bytes(at + bytes - 1000, 700); /* rank 1 reads it */
    load(&good, TALES "target", 2, "bf16", 1, 3);
    load(&bad, work, 2, "bf16", 1, 3);
    const struct tensor_spec *tensors = checkpoint_tensors(good.ck, &good.n);
    const struct part_digest *seen = model_witnessed(good.models[0], 1);
    size_t tensor = digest_witness_differs(bad.tables + bad.n, seen, bad.n);
    ck_assert_uint_lt(tensor, bad.n);
    ck_assert_str_eq(tensors[tensor].name, up_3);
    seen = model_witnessed(good.models[1], 0); /* rank 0 does not read it */
    ck_assert_uint_eq(digest_witness_differs(bad.tables, seen, bad.n), bad.n);
    unload(&good);
    unload(&bad);
}
END_TEST

/* A tensor that every rank reads, and one of a kv head that two ranks share. */
START_TEST(ranks_that_hold_the_same_part_are_compared)
{
    struct loaded l;
    struct digest_conflict conflict;
    load(&l, TALES "target", 8, "bf16", 1, 0);
    const struct tensor_spec *tensors = checkpoint_tensors(l.ck, &l.n);
    for (size_t t = 0; t < l.n; t++) {
        bool is_shared = strstr(tensors[t].name, "norm") || strstr(tensors[t].name, "embed");
        bool is_pair = strstr(tensors[t].name, "k_proj") || strstr(tensors[t].name, "v_proj");
        l.tables[5 * l.n + t].sum++;
        bool agree = digest_ranks_agree(l.tables, 8, l.n, &conflict);
        ck_assert_msg(agree == !(is_shared || is_pair), "%s", tensors[t].name);
        if (!agree) {
            ck_assert_uint_eq(conflict.tensor, t);
            ck_assert_int_eq(conflict.rank, 5);
            ck_assert_int_eq(conflict.other, is_shared ? 0 : 4);
        }
        l.tables[5 * l.n + t].sum--;
    }
    unload(&l);
}
END_TEST

START_TEST(stored_integers_count_with_their_scales)
{
    static const char *const names[] = {"int8", "int4"};
    static const enum weight_form forms[] = {WEIGHTS_INT8, WEIGHTS_INT4};
    for (int i = 0; i < 2; i++) {
        copy_model(TALES "target", forms[i]);
        uint64_t one = fingerprint(work, 1, names[i], 1);
        ck_assert_uint_eq(fingerprint(work, 2, names[i], 2), one);
        ck_assert_uint_eq(fingerprint(work, 8, names[i], 1), one);
        flip_bits(forms[i], names[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digest");
    TCase *cases = tcase_create("digest");
    tcase_set_timeout(cases, 100);
    tcase_add_checked_fixture(cases, make_work, remove_work);
    tcase_add_test(cases, the_fingerprint_does_not_depend_on_ranks_threads_and_forms);
    tcase_add_test(cases, a_copy_of_a_model_has_its_fingerprint);
    tcase_add_test(cases, zeros_between_the_samples_are_noticed);
    tcase_add_test(cases, every_changed_bit_changes_the_fingerprint);
    tcase_add_test(cases, synthetic_models_differ_by_name);
    tcase_add_test(cases, a_witness_finds_the_tensor_that_differs);
    tcase_add_test(cases, ranks_that_hold_the_same_part_are_compared);
    tcase_add_test(cases, stored_integers_count_with_their_scales);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
