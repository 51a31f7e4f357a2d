/* ctest: labels=quick libs=worker timeout=60 */
/* Ranks that mpirun has started compare what they must share before they work together. Here they
 * are threads. */
#include <pthread.h>

#include "tests/support/check_util.h"
#include "worker/group.h"

enum { N_RANKS = 4 };

struct member {
    struct group group;
    struct target_description mine;
    struct error err;
    int rc;
    pthread_t thread;
};

static struct member members[N_RANKS];
static struct error err;

static void *join(void *arg)
{
    struct member *member = arg;
    member->rc = group_join(&member->group, &member->mine, &member->err);
    comm_close(member->group.comm);
    return NULL;
}

/* All ranks join; rank `odd`, unless it is -1, has another --slots. */
static void join_all(int odd)
{
    struct comm *comms[N_RANKS];
    CHECK_OK(comm_threads_open(comms, N_RANKS, &err));
    for (int r = 0; r < N_RANKS; r++) {
        members[r] = (struct member){
            .group = {.world = comms[r], .comm = comms[r]},
            .mine = {.arithmetic = "cpu-bf16", .rank = r, .n_slots = r == odd ? 5 : 4}};
        pthread_create(&members[r].thread, NULL, join, &members[r]);
    }
    for (int r = 0; r < N_RANKS; r++)
        pthread_join(members[r].thread, NULL);
}

START_TEST(equal_ranks_join)
{
    join_all(-1);
    for (int r = 0; r < N_RANKS; r++)
        ck_assert_msg(members[r].rc == 0, "rank %d: %s", r, members[r].err.text);
}
END_TEST

START_TEST(every_rank_names_the_one_that_differs_and_in_what)
{
    join_all(2);
    for (int r = 0; r < N_RANKS; r++) {
        ck_assert_int_eq(members[r].rc, ERR_ARGUMENT);
        ck_assert_str_eq(members[r].err.text, "rank 2 has another --slots than rank 0; start all "
                                              "ranks with the same files and flags");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group");
    TCase *cases = tcase_create("group");
    tcase_add_test(cases, equal_ranks_join);
    tcase_add_test(cases, every_rank_names_the_one_that_differs_and_in_what);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
