/* ctest: labels=quick,threads libs=model timeout=120 */
/* Packed weights on disk: a start that finds them computes the same bits. A file that is wrong in
 * any way is refused with a sentence, packed again and replaced. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model/backend/open.h"
#include "model/model.h"
#include "tests/support/check_util.h"

enum { N_TOKENS = 8, N_BEST = 24, PATH_BYTES = 512, COPY_BYTES = 1 << 16 };

static const char synthetic[] = "synthetic:tiny,seed=3";
static char folder[64]; /* of each test, emptied after it */

/* Results of a start: the best logits after some tokens, and the report. */
struct start {
    struct select_item best[N_BEST];
    int n_best;
    struct pack_cache_report report;
    bool has_report;
    uint64_t fingerprint;
};

static int begin(struct start *start, const char *model_name, const char *pack_cache, int n_threads,
                 struct error *err)
{
    static int32_t blocks[1], tokens[N_TOKENS] = {5, 9, 1, 77, 30, 30, 2, 11};
    const struct model_options mo = {
        .n_kv_blocks = 1, .max_tokens = N_TOKENS, .max_rows = 1, .max_lanes = 1};
    struct backend_options bo = {.device = "cpu",
                                 .weights = "bf16",
                                 .kernels = "auto",
                                 .n_threads = n_threads,
                                 .pack_cache = pack_cache};
    const struct forward_lane lane = {0, N_TOKENS, tokens, blocks, NULL};
    const struct forward_row row = {0, N_TOKENS - 1};
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    struct arena arena = {0};
    int rc = 0;
    memset(start, 0, sizeof *start);
    TRY(arena_open(&arena, 1 << 20, err));
    TRY(checkpoint_open(&ck, model_name, err));
    TRY(backend_open(&be, &bo, err));
    TRY(model_open(&model, ck, comm_single(), be, &mo, err));
    TRY(model_forward(model, &lane, 1, &row, 1, err));
    TRY(model_best(model, 0, N_BEST, &arena, start->best, &start->n_best, err));
    start->fingerprint = model_fingerprint(model);
    start->has_report = model_pack_report(model) != NULL;
    if (start->has_report) start->report = *model_pack_report(model);
out:
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    arena_close(&arena);
    return rc;
}

/* Starts and checks the state and that the bits are those of a start without a cache. */
static struct pack_cache_report expect(const char *model_name, const char *where, int n_threads,
                                       enum pack_cache_state state, const char *words)
{
    struct error err;
    struct start plain, start;
    CHECK_OK(begin(&plain, model_name, "off", 1, &err));
    ck_assert(!plain.has_report);
    CHECK_OK(begin(&start, model_name, where, n_threads, &err));
    ck_assert_msg(start.report.state == state, "%s, not %s: %s",
                  pack_cache_state_name(start.report.state), pack_cache_state_name(state),
                  start.report.text);
    if (words) {
        ck_assert_msg(strstr(start.report.text, words) != NULL, "'%s' lacks '%s'",
                      start.report.text, words);
    } else {
        ck_assert_str_eq(start.report.text, "");
    }
    ck_assert_uint_eq(plain.fingerprint, start.fingerprint);
    ck_assert_int_eq(plain.n_best, N_BEST);
    ck_assert_int_eq(start.n_best, N_BEST);
    for (int i = 0; i < N_BEST; i++) {
        ck_assert_int_eq(plain.best[i].id, start.best[i].id);
        ck_assert(plain.best[i].score == start.best[i].score);
    }
    return start.report;
}

/* The only file in the folder; any other would be a leftover. */
static void find_file(char path[PATH_BYTES])
{
    DIR *dir = opendir(folder);
    int n = 0;
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, PATH_BYTES, "%s/%.200s", folder, entry->d_name);
        n++;
    }
    closedir(dir);
    ck_assert_int_eq(n, 1);
}

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/outrider-pack-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void empty(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char file[PATH_BYTES];
        if (entry->d_name[0] == '.') continue;
        snprintf(file, sizeof file, "%.100s/%.200s", path, entry->d_name);
        if (unlink(file)) empty(file);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static void tear_down(void)
{
    empty(folder);
}

static void change_byte(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return st.st_size;
}

START_TEST(second_start_finds_what_the_first_wrote)
{
    char path[PATH_BYTES];
    struct stat st;
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    expect(synthetic, folder, 1, PACK_CACHE_HIT, NULL);
    expect(synthetic, folder, 3, PACK_CACHE_HIT, NULL); /* threads do not count */
    find_file(path);
}
END_TEST

/* Large enough for huge pages: mapped where the file system has them, copied where not. */
START_TEST(file_of_several_blocks_gives_the_same_bits)
{
    static const char large[] = "synthetic:tiny,seed=3,vocab=40000";
    char path[PATH_BYTES];
    expect(large, folder, 2, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    ck_assert_int_gt(size_of(path), 4 << 20);
    expect(large, folder, 2, PACK_CACHE_HIT, NULL);
    change_byte(path, (off_t)(3 << 20));
    expect(large, folder, 2, PACK_CACHE_WRITTEN, "checksum of a matrix");
    expect(large, folder, 1, PACK_CACHE_HIT, NULL);
}
END_TEST

START_TEST(folder_is_made_and_models_do_not_share_a_file)
{
    char deep[PATH_BYTES];
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    expect(synthetic, deep, 2, PACK_CACHE_WRITTEN, NULL);
    expect("synthetic:tiny,seed=4", deep, 1, PACK_CACHE_WRITTEN, NULL);
    expect(synthetic, deep, 1, PACK_CACHE_HIT, NULL);
    expect("synthetic:tiny,seed=4", deep, 1, PACK_CACHE_HIT, NULL);
}
END_TEST

START_TEST(changed_byte_of_a_matrix_is_found_and_mended)
{
    char path[PATH_BYTES];
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    change_byte(path, size_of(path) / 2 / 4096 * 4096 + 5);
    expect(synthetic, folder, 2, PACK_CACHE_WRITTEN, "checksum of a matrix");
    expect(synthetic, folder, 2, PACK_CACHE_HIT, NULL);
}
END_TEST

START_TEST(head_that_is_wrong_is_refused_and_the_file_replaced)
{
    static const struct {
        off_t at;
        const char *words;
    } heads[] = {{0, "holds no packed weights"},
                 {8, "version"},
                 {16, "bytes and says"},
                 {32, "head's checksum"},
                 {50, "head's checksum"}};
    char path[PATH_BYTES];
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        change_byte(path, heads[i].at);
        expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, heads[i].words);
        expect(synthetic, folder, 1, PACK_CACHE_HIT, NULL);
        find_file(path);
    }
}
END_TEST

START_TEST(file_cut_short_is_refused)
{
    char path[PATH_BYTES];
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    const off_t whole = size_of(path), sizes[] = {0, 20, 4096, whole - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ck_assert_int_eq(truncate(path, sizes[i]), 0);
        expect(synthetic, folder, 1, PACK_CACHE_WRITTEN,
               sizes[i] < 40 ? "holds no packed" : "says");
        ck_assert_int_eq(size_of(path), whole);
    }
}
END_TEST

START_TEST(file_of_another_key_under_this_name_is_refused)
{
    char mine[PATH_BYTES], other[PATH_BYTES];
    expect("synthetic:tiny,seed=4", folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(other);
    char kept[PATH_BYTES + 8];
    snprintf(kept, sizeof kept, "%s.kept", folder);
    ck_assert_int_eq(rename(other, kept), 0);
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(mine);
    ck_assert_int_eq(rename(kept, mine), 0);
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, "another model or shard");
    expect(synthetic, folder, 1, PACK_CACHE_HIT, NULL);
}
END_TEST

START_TEST(file_that_others_could_have_written_is_refused)
{
    char path[PATH_BYTES];
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    ck_assert_int_eq(chmod(path, 0620), 0);
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, "can be written by others (mode 620)");
    if (geteuid() != 0) return; /* only root gives files away */
    ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, "belongs to user 12345");
    expect(synthetic, folder, 1, PACK_CACHE_HIT, NULL);
}
END_TEST

START_TEST(folder_that_cannot_be_written_costs_the_file_and_not_the_start)
{
    char path[PATH_BYTES];
    expect(synthetic, "/proc/outrider-nowhere", 1, PACK_CACHE_FAILED, "cannot make the folder");
    expect(synthetic, "/dev/null/under", 1, PACK_CACHE_FAILED, "/dev/null");
    if (geteuid() == 0) return; /* root writes where it is not allowed to */
    expect(synthetic, folder, 1, PACK_CACHE_WRITTEN, NULL);
    find_file(path);
    change_byte(path, 0);
    ck_assert_int_eq(chmod(folder, 0500), 0);
    expect(synthetic, folder, 1, PACK_CACHE_FAILED, "holds no packed weights");
    chmod(folder, 0700);
}
END_TEST

START_TEST(name_that_is_too_long_costs_the_file_and_not_the_start)
{
    static char name[5000];
    memset(name, 'x', sizeof name - 1);
    expect(synthetic, name, 1, PACK_CACHE_FAILED, "more than 4096 bytes");
}
END_TEST

START_TEST(racing_starts_leave_one_good_file)
{
    enum { N = 4 };
    pid_t children[N];
    char path[PATH_BYTES];
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i]) continue;
        struct error err;
        struct start start;
        int rc = begin(&start, synthetic, folder, 1, &err);
        _exit(rc || start.report.state == PACK_CACHE_FAILED);
    }
    for (int i = 0; i < N; i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    find_file(path);
    expect(synthetic, folder, 1, PACK_CACHE_HIT, NULL);
}
END_TEST

static void copy_file(const char *name, const char *to_folder)
{
    static char buf[COPY_BYTES];
    char from[PATH_BYTES], to[PATH_BYTES];
    snprintf(from, sizeof from, SOURCE_DIR "/deploy/models/tales/draft/%s", name);
    snprintf(to, sizeof to, "%s/%s", to_folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert_ptr_nonnull(in);
    ck_assert_ptr_nonnull(out);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        ck_assert_uint_eq(fwrite(buf, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void copy_draft(void)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++)
        copy_file(names[i], folder);
}

/* The key has only samples of the weights, but a weight between the samples must not be served from
 * an old file, even if the edit kept the size and the time of the last write. */
START_TEST(touched_weights_are_packed_again)
{
    char path[PATH_BYTES];
    struct stat before, after;
    copy_draft();
    expect(folder, "auto", 2, PACK_CACHE_WRITTEN, NULL);
    expect(folder, "auto", 2, PACK_CACHE_HIT, NULL);
    snprintf(path, sizeof path, "%s/packed", folder);
    ck_assert_int_eq(access(path, R_OK | X_OK), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert_int_eq(stat(path, &before), 0);
    change_byte(path, size_of(path) - 3000);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert(after.st_size == before.st_size && after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
              after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
    expect(folder, "auto", 2, PACK_CACHE_WRITTEN, NULL);
    expect(folder, "auto", 2, PACK_CACHE_HIT, NULL);
}
END_TEST

/* Rank 0 of two, which also digests what rank 1 reads. Returns the cache's state; *first and *other
 * are the digests of one matrix, as this rank reads it and as the other one does. */
static enum pack_cache_state begin_witness(uint64_t *first, uint64_t *other)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *be;
    struct model *model;
    size_t n, i = 0;
    struct comm comm = *comm_single();
    const struct model_options mo = {
        .n_kv_blocks = 1, .max_tokens = 1, .max_rows = 1, .max_lanes = 1, .witnessed = 1u << 1};
    const struct backend_options bo = {.device = "cpu",
                                       .weights = "int8",
                                       .kernels = "auto",
                                       .n_threads = 2,
                                       .pack_cache = "auto"};
    comm.size = 2;
    CHECK_OK(checkpoint_open(&ck, folder, &err));
    CHECK_OK(backend_open(&be, &bo, &err));
    CHECK_OK(model_open(&model, ck, &comm, be, &mo, &err));
    const struct tensor_spec *tensors = checkpoint_tensors(ck, &n);
    while (!strstr(tensors[i].name, "down_proj")) {
        i++;
    }
    enum pack_cache_state state = model_pack_report(model)->state;
    *first = model_digests(model)[i].sum;
    *other = model_witnessed(model, 1)[i].sum;
    model_close(model);
    be->ops->close(be);
    checkpoint_close(ck);
    return state;
}

START_TEST(digests_of_a_witness_are_kept_too)
{
    uint64_t digests[2][2];
    copy_draft();
    ck_assert_int_eq(begin_witness(&digests[0][0], &digests[0][1]), PACK_CACHE_WRITTEN);
    ck_assert_int_eq(begin_witness(&digests[1][0], &digests[1][1]), PACK_CACHE_HIT);
    ck_assert_mem_eq(digests[0], digests[1], sizeof digests[0]);
    ck_assert_uint_ne(digests[0][0], digests[0][1]);
    ck_assert_uint_ne(digests[0][0], 0);
}
END_TEST

START_TEST(auto_of_a_synthetic_model_is_the_users_cache)
{
    char path[PATH_BYTES];
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
    expect(synthetic, "auto", 1, PACK_CACHE_WRITTEN, NULL);
    snprintf(path, sizeof path, "%s/outrider", folder);
    ck_assert_int_eq(access(path, R_OK), 0);
    unsetenv("XDG_CACHE_HOME");
    ck_assert_int_eq(setenv("HOME", folder, 1), 0);
    expect(synthetic, "auto", 1, PACK_CACHE_WRITTEN, NULL);
    expect(synthetic, "auto", 1, PACK_CACHE_HIT, NULL);
    unsetenv("HOME");
    struct error err;
    struct start start;
    CHECK_ERR(begin(&start, synthetic, "auto", 1, &err), ERR_ARGUMENT, "--pack-cache auto");
}
END_TEST

START_TEST(gpus_keep_no_packed_weights)
{
    struct error err;
    struct backend *be;
    const struct backend_options bo = {
        .device = "cuda", .weights = "bf16", .kernels = "auto", .n_threads = 1, .pack_cache = "x"};
    CHECK_ERR(backend_open(&be, &bo, &err), ERR_ARGUMENT, "--pack-cache x");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pack_cache");
    TCase *cases = tcase_create("pack_cache");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, second_start_finds_what_the_first_wrote);
    tcase_add_test(cases, file_of_several_blocks_gives_the_same_bits);
    tcase_add_test(cases, folder_is_made_and_models_do_not_share_a_file);
    tcase_add_test(cases, changed_byte_of_a_matrix_is_found_and_mended);
    tcase_add_test(cases, head_that_is_wrong_is_refused_and_the_file_replaced);
    tcase_add_test(cases, file_cut_short_is_refused);
    tcase_add_test(cases, file_of_another_key_under_this_name_is_refused);
    tcase_add_test(cases, file_that_others_could_have_written_is_refused);
    tcase_add_test(cases, folder_that_cannot_be_written_costs_the_file_and_not_the_start);
    tcase_add_test(cases, name_that_is_too_long_costs_the_file_and_not_the_start);
    tcase_add_test(cases, racing_starts_leave_one_good_file);
    tcase_add_test(cases, touched_weights_are_packed_again);
    tcase_add_test(cases, digests_of_a_witness_are_kept_too);
    tcase_add_test(cases, auto_of_a_synthetic_model_is_the_users_cache);
    tcase_add_test(cases, gpus_keep_no_packed_weights);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
