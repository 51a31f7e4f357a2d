/* ctest: labels=quick,threads libs=worker,export timeout=120 */
/* Ranks compare the weights that they have loaded, each from its own copy of a model. Here they are
 * threads. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "model/backend/open.h"
#include "tests/support/check_util.h"
#include "tests/support/export_util.h"
#include "worker/copies.h"
#include "worker/share.h"

enum { N_RANKS = 4, SHARED_BYTES = 10001 };

static const char up_2[] = "model.layers.2.mlp.up_proj.weight";

struct member {
    const char *model;
    struct group group;
    unsigned witnessed;
    uint64_t fingerprint;
    struct error err;
    int rc;
    pthread_t thread;
};

static struct member members[N_RANKS];

static const struct backend_options on_cpu = {
    .device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1};

static void *start(void *arg)
{
    struct member *m = arg;
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    struct copies copies;
    struct model_options mo = {.n_kv_blocks = 1, .max_tokens = 1, .max_rows = 1, .max_lanes = 1};
    int rc = 0;
    TRY(checkpoint_open(&ck, m->model, &m->err));
    TRY(backend_open(&be, &on_cpu, &m->err));
    TRY(copies_plan(&copies, &m->group, ck, be, &m->err));
    m->witnessed = mo.witnessed = copies.witnessed;
    TRY(model_open(&model, ck, m->group.comm, be, &mo, &m->err));
    TRY(copies_check(&copies, &m->group, ck, be, model, &m->fingerprint, &m->err));
out:
    m->rc = rc;
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    comm_close(m->group.comm);
    return NULL;
}

/* Starts n ranks; those of which the bit is set have the model at `work`. */
static void start_all(int n, unsigned from_work)
{
    struct comm *comms[N_RANKS];
    CHECK_OK(comm_threads_open(comms, n, &err));
    for (int r = 0; r < n; r++) {
        members[r] = (struct member){.model = from_work >> r & 1 ? work : TALES "target",
                                     .group = {.world = comms[r], .comm = comms[r]}};
        pthread_create(&members[r].thread, NULL, start, &members[r]);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(members[r].thread, NULL);
    }
}

static void copy_target(void)
{
    const struct export_options options = {.shard_bytes = 1 << 30};
    struct export_result result;
    remove_folder(work);
    CHECK_OK(model_export(TALES "target", work, &options, &result, &err));
}

/* Changes the last byte of a matrix in `work`, which only the last rank reads. */
static void damage(const char *name, int n_rows, int n_cols)
{
    struct checkpoint *ck;
    struct weight weight;
    char path[PATH_BYTES + 32], pattern[64];
    struct stat st;
    CHECK_OK(checkpoint_open(&ck, work, &err));
    CHECK_OK(checkpoint_find(ck, name, n_rows, n_cols, &weight, &err));
    size_t bytes = weight_data_bytes(&weight);
    memcpy(pattern, weight.data + bytes - sizeof pattern, sizeof pattern);
    checkpoint_close(ck);
    snprintf(path, sizeof path, "%s/model.safetensors", work);
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(fstat(fd, &st), 0);
    char *file = malloc((size_t)st.st_size);
    ck_assert_int_eq((int)pread(fd, file, (size_t)st.st_size, 0), (int)st.st_size);
    char *at = file, *last = file + st.st_size - sizeof pattern;
    while (at < last && memcmp(at, pattern, sizeof pattern) != 0) {
        at++;
    }
    ck_assert(at < last);
    at[sizeof pattern - 1] ^= 1;
    ck_assert_int_eq((int)pwrite(fd, at, sizeof pattern, at - file), (int)sizeof pattern);
    close(fd);
    free(file);
}

static void check_refused(int n, const char *part)
{
    for (int r = 0; r < n; r++) {
        ck_assert_int_eq(members[r].rc, ERR_FORMAT);
        ck_assert_msg(strstr(members[r].err.text, part) != NULL, "%s", members[r].err.text);
    }
}

START_TEST(witness_is_a_rank_with_another_copy)
{
    static const uint64_t alone[] = {7}, same[] = {5, 5, 5, 5}, all[] = {1, 2, 3, 4};
    static const uint64_t hosts[] = {1, 1, 2, 2}, odd[] = {1, 1, 1, 2};
    ck_assert_int_eq(copies_witness(alone, 1, 0), -1);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(copies_witness(same, 4, r), -1);
        ck_assert_int_eq(copies_witness(hosts, 4, r), (r + 2) % 4);
        ck_assert_int_eq(copies_witness(odd, 4, r), r < 3 ? 3 : 0);
        ck_assert_int_ne(copies_witness(all, 4, r), r);
        for (int other = 0; other < r; other++) {
            ck_assert_int_ne(copies_witness(all, 4, r), copies_witness(all, 4, other));
        }
    }
}
END_TEST

START_TEST(ranks_of_one_folder_need_no_witness)
{
    uint64_t one = 0;
    for (int n = 1; n <= N_RANKS; n *= 2) {
        start_all(n, 0);
        for (int r = 0; r < n; r++) {
            ck_assert_msg(members[r].rc == 0, "rank %d: %s", r, members[r].err.text);
            ck_assert_uint_eq(members[r].witnessed, 0);
            if (n == 1) one = members[r].fingerprint;
            ck_assert_uint_eq(members[r].fingerprint, one);
        }
    }
}
END_TEST

START_TEST(equal_copies_have_the_fingerprint_of_one)
{
    copy_target();
    start_all(1, 0);
    uint64_t one = members[0].fingerprint;
    start_all(4, 0xc);
    for (int r = 0; r < 4; r++) {
        ck_assert_msg(members[r].rc == 0, "rank %d: %s", r, members[r].err.text);
        ck_assert_uint_eq(members[r].fingerprint, one);
        ck_assert_uint_eq(members[r].witnessed, 1u << (r + 2) % 4);
    }
}
END_TEST

/* Only rank 3 reads the byte; all ranks say the same. */
START_TEST(damage_that_one_rank_alone_reads_is_refused)
{
    copy_target();
    damage(up_2, 768, 256);
    start_all(4, 0xc);
    check_refused(4, "tensor model.layers.2.mlp.up_proj.weight is not the same on ranks 3 and 1");
    check_refused(4, "start all ranks with equal ones");
    start_all(2, 0x2);
    check_refused(2, "tensor model.layers.2.mlp.up_proj.weight is not the same on ranks 1 and 0");
}
END_TEST

START_TEST(damage_that_all_ranks_read_is_refused)
{
    copy_target();
    damage("model.embed_tokens.weight", 4096, 256);
    start_all(2, 0x2);
    check_refused(2, "tensor model.embed_tokens.weight is not the same on ranks 1 and 0");
}
END_TEST

/* Rank 0 does not use the byte, but its copy is not the one that rank 1 has. */
START_TEST(damage_is_refused_in_either_copy)
{
    copy_target();
    damage(up_2, 768, 256);
    start_all(2, 0x1);
    check_refused(2, "tensor model.layers.2.mlp.up_proj.weight is not the same on ranks 1 and 0");
}
END_TEST

struct sharer {
    struct comm *comm;
    uint8_t mine[SHARED_BYTES], all[N_RANKS * SHARED_BYTES];
    struct error err;
    int rc;
    pthread_t thread;
};

static struct sharer sharers[N_RANKS];

static void *share(void *arg)
{
    struct sharer *s = arg;
    struct backend *be = NULL;
    int rc = 0;
    TRY(backend_open(&be, &on_cpu, &s->err));
    TRY(share_by_sum(s->comm, be, s->mine, s->all, SHARED_BYTES, &s->err));
out:
    s->rc = rc;
    if (be) be->ops->close(be);
    comm_close(s->comm);
    return NULL;
}

START_TEST(bytes_are_shared_by_sums)
{
    struct comm *comms[N_RANKS];
    CHECK_OK(comm_threads_open(comms, N_RANKS, &err));
    for (int r = 0; r < N_RANKS; r++) {
        sharers[r].comm = comms[r];
        for (int i = 0; i < SHARED_BYTES; i++) {
            sharers[r].mine[i] = (uint8_t)(i * 7 + i / 256 + 31 * r);
        }
        pthread_create(&sharers[r].thread, NULL, share, &sharers[r]);
    }
    for (int r = 0; r < N_RANKS; r++) {
        pthread_join(sharers[r].thread, NULL);
    }
    for (int r = 0; r < N_RANKS; r++) {
        ck_assert_msg(sharers[r].rc == 0, "%s", sharers[r].err.text);
        for (int other = 0; other < N_RANKS; other++) {
            ck_assert_mem_eq(sharers[r].all + (size_t)other * SHARED_BYTES, sharers[other].mine,
                             SHARED_BYTES);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("copies");
    TCase *cases = tcase_create("copies");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, make_work, remove_work);
    tcase_add_test(cases, witness_is_a_rank_with_another_copy);
    tcase_add_test(cases, ranks_of_one_folder_need_no_witness);
    tcase_add_test(cases, equal_copies_have_the_fingerprint_of_one);
    tcase_add_test(cases, damage_that_one_rank_alone_reads_is_refused);
    tcase_add_test(cases, damage_that_all_ranks_read_is_refused);
    tcase_add_test(cases, damage_is_refused_in_either_copy);
    tcase_add_test(cases, bytes_are_shared_by_sums);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
