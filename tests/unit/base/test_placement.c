/* ctest: labels=quick libs=base timeout=60 */
/* Threads and CPUs chosen from given facts: machines, quotas, other processes, lists. */
#include <stdio.h>
#include <string.h>

#include "base/system/placement.h"
#include "tests/support/check_util.h"

/* A machine of n_cores cores with `ways` CPUs each. CPUs c and c + n_cores share a core, as on most
 * machines with two threads per core. */
static struct topology machine(int n_cores, int ways, int quota)
{
    struct topology t = {.quota_cpus = quota, .host = 1};
    for (int core = 0; core < n_cores; core++) {
        for (int way = 0; way < ways; way++) {
            t.cpus[t.n_cpus++] = (struct topology_cpu){.cpu = core + way * n_cores, .core = core};
        }
    }
    return t;
}

static const struct {
    int n_cores, ways, quota;
    struct placement_wish wish;
    int n_threads;
    const char *pin;
} cases[] = {
    /* a single rank whose coordinator is on another machine, or on this one */
    {8, 1, 0, {.n_sharing = 1}, 8, "off"},
    {8, 1, 0, {.n_sharing = 1, .has_coordinator = true}, 7, "off"},
    {1, 1, 0, {.n_sharing = 1, .has_coordinator = true}, 1, "off"},
    {2, 1, 0, {.n_sharing = 1, .has_coordinator = true}, 2, "off"},
    {4, 1, 0, {.n_sharing = 2, .has_coordinator = true}, 2, "off"},
    {5, 1, 0, {.n_sharing = 1, .has_coordinator = true}, 4, "off"},
    /* threads of a core do not count */
    {4, 2, 0, {.n_sharing = 1}, 4, "off"},
    /* ranks divide the cores among them; with too few cores each still has one thread */
    {8, 1, 0, {.n_sharing = 2, .sharing = 1, .is_safe = true}, 4, "4,5,6,7"},
    {8, 2, 0, {.n_sharing = 4, .sharing = 3, .is_safe = true}, 2, "6,7"},
    {8, 1, 0, {.n_sharing = 2, .sharing = 1, .is_safe = true, .has_coordinator = true}, 3, "off"},
    {2, 1, 0, {.n_sharing = 2, .sharing = 1, .is_safe = true, .has_coordinator = true}, 1, "1"},
    {2, 1, 0, {.n_sharing = 4, .sharing = 1, .is_safe = true}, 1, "off"},
    /* a quota limits the threads, and a process with a quota is not pinned */
    {8, 1, 3, {.n_sharing = 1}, 3, "off"},
    {8, 1, 3, {.n_sharing = 2, .sharing = 1, .is_safe = true}, 1, "off"},
    {2, 1, 16, {.n_sharing = 1}, 2, "off"},
    /* a number that is asked for is used; without a core for each thread there is no pinning */
    {2, 1, 0, {.n_threads = 5, .n_sharing = 1}, 5, "off"},
    {4, 1, 0, {.n_threads = 2, .n_sharing = 2, .sharing = 1, .is_safe = true}, 2, "2,3"},
    {4, 1, 0, {.n_threads = 3, .n_sharing = 2, .sharing = 1, .is_safe = true}, 3, "off"},
    {8, 1, 0, {.n_sharing = 2, .is_safe = true, .pin = PIN_OFF}, 4, "off"},
    {8, 1, 0, {.n_sharing = 1, .pin = PIN_LIST, .n_cpus = 2, .cpus = {5, 3}}, 2, "5,3"},
    {8,
     1,
     0,
     {.n_sharing = 2, .sharing = 1, .pin = PIN_LIST, .n_cpus = 4, .cpus = {5, 3, 1, 0}},
     2,
     "1,0"},
    {8, 1, 2, {.n_threads = 1, .pin = PIN_LIST, .n_cpus = 2, .cpus = {5, 3}}, 1, "5"},
    /* CPUs that were given to this rank alone */
    {2, 1, 0, {.n_sharing = 1, .is_safe = true}, 2, "0,1"},
};

START_TEST(placement_follows_the_table)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err;
        struct placement placement;
        char text[128];
        struct topology t = machine(cases[i].n_cores, cases[i].ways, cases[i].quota);
        CHECK_OK(placement_choose(&placement, &t, &cases[i].wish, &err));
        placement_show(&placement, text, sizeof text);
        ck_assert_msg(placement.n_threads == cases[i].n_threads && !strcmp(text, cases[i].pin),
                      "case %zu: %d threads on %s", i, placement.n_threads, text);
    }
}
END_TEST

START_TEST(placement_never_puts_two_processes_on_one_core)
{
    for (int n_cores = 1; n_cores <= 12; n_cores++) {
        struct topology t = machine(n_cores, 2, 0);
        for (int n = 2; n <= 8; n++) {
            int used[64] = {0};
            for (int i = 0; i < n; i++) {
                struct error err;
                struct placement p;
                const struct placement_wish wish = {
                    .n_sharing = n, .sharing = i, .is_safe = true, .has_coordinator = true};
                CHECK_OK(placement_choose(&p, &t, &wish, &err));
                for (int k = 0; p.is_pinned && k < p.n_threads; k++) {
                    ck_assert_int_lt(p.cpus[k], n_cores); /* the first CPU of a core */
                    ck_assert_int_eq(used[p.cpus[k]]++, 0);
                }
            }
        }
    }
}
END_TEST

/* ---- caches, nodes, slow cores ---- */

/* A machine from a drawing: a letter for each core, the same letter for cores that share a cache,
 * in lower case if they are slow; "|" begins the next node. With two ways CPUs c and c + n share a
 * core. */
static struct topology drawn(const char *drawing, int ways)
{
    struct topology t = {.host = 1};
    int n_cores = 0, node = 0;
    for (const char *c = drawing; *c; c++)
        n_cores += *c != '|';
    for (int core = 0; *drawing; drawing++) {
        bool is_slow = *drawing >= 'a' && *drawing <= 'z';
        if (*drawing == '|') {
            node++;
            continue;
        }
        for (int way = 0; way < ways; way++) {
            t.cpus[t.n_cpus++] =
                (struct topology_cpu){.cpu = core + way * n_cores,
                                      .core = core,
                                      .cache = is_slow ? *drawing - 'a' : *drawing - 'A',
                                      .node = node,
                                      .is_slow = is_slow};
        }
        core++;
    }
    return t;
}

enum { RANKS_MAX = 8 };

static const struct {
    const char *machine;
    int ways;
    int n_ranks, n_threads; /* 0 threads: auto */
    bool has_coordinator;
    const char *pins[RANKS_MAX]; /* of each rank */
} near_cases[] = {
    /* two caches of eight cores */
    {"AAAAAAAABBBBBBBB", 1, 2, 0, false, {"0,1,2,3,4,5,6,7", "8,9,10,11,12,13,14,15"}},
    {"AAAAAAAABBBBBBBB", 2, 4, 0, false, {"0,1,2,3", "4,5,6,7", "8,9,10,11", "12,13,14,15"}},
    /* a coordinator beside them, so not every core has a thread */
    {"AAAAAAAABBBBBBBB", 1, 2, 0, true, {"within:0-7", "within:8-15"}},
    {"AAAABBBB", 2, 2, 0, true, {"within:0-3,8-11", "within:4-7,12-15"}},
    {"AAAAAAAABBBBBBBB",
     1,
     4,
     2,
     false,
     {"within:0-7", "within:0-7", "within:8-15", "within:8-15"}},
    /* the third of three has what the others left in both */
    {"AAAAAAAABBBBBBBB", 1, 3, 0, false, {"within:0-7", "within:8-15", "off"}},
    {"AAAAAABBBBBB", 1, 3, 0, false, {"0,1,2,3", "6,7,8,9", "4,5,10,11"}},
    /* caches of different sizes, as an affinity mask can leave them */
    {"AABBBBCC", 1, 2, 0, false, {"2,3,4,5", "0,1,6,7"}},
    {"AAABBBBB", 1, 2, 0, false, {"3,4,5,6", "0,1,2,7"}},
    /* one cache for all, or none known */
    {"AAAAAAAA", 1, 2, 0, true, {"off", "off"}},
    {"AAAAAAAA", 1, 2, 0, false, {"0,1,2,3", "4,5,6,7"}},
    /* two sockets, then two sockets with four nodes */
    {"AAAA|BBBB", 1, 2, 0, false, {"0,1,2,3", "4,5,6,7"}},
    {"AAAA|BBBB", 1, 2, 0, true, {"within:0-3", "within:4-7"}},
    {"AA|BB|CC|DD", 1, 2, 0, false, {"0,1,2,3", "4,5,6,7"}},
    /* caches smaller than a rank's share: of one node, and whole */
    {"AABBCC|DDEEFF", 1, 2, 0, false, {"0,1,2,3,4,5", "6,7,8,9,10,11"}},
    {"AABBCC|DDEEFF", 1, 3, 0, false, {"0,1,2,3", "6,7,8,9", "4,5,10,11"}},
    /* ranks wait for each other, so each has as many slow cores as the others */
    {"AAAAAAaaaaaaaa", 1, 2, 0, false, {"0,1,2,6,7,8,9", "3,4,5,10,11,12,13"}},
    {"AAAAbbbb", 1, 2, 0, false, {"0,1,4,5", "2,3,6,7"}},
    {"AAbbbbbb", 1, 4, 0, false, {"0,2", "1,3", "4,5", "6,7"}},
    {"AAAbbbbb", 1, 2, 0, false, {"0,1,3,4", "2,5,6,7"}},
};

START_TEST(ranks_are_placed_on_cores_that_share_a_cache)
{
    for (size_t i = 0; i < sizeof near_cases / sizeof *near_cases; i++) {
        struct topology t = drawn(near_cases[i].machine, near_cases[i].ways);
        for (int rank = 0; rank < near_cases[i].n_ranks; rank++) {
            struct error err;
            struct placement p;
            char text[128];
            const struct placement_wish wish = {.n_threads = near_cases[i].n_threads,
                                                .n_sharing = near_cases[i].n_ranks,
                                                .sharing = rank,
                                                .is_safe = true,
                                                .has_coordinator = near_cases[i].has_coordinator};
            CHECK_OK(placement_choose(&p, &t, &wish, &err));
            placement_show(&p, text, sizeof text);
            ck_assert_msg(!strcmp(text, near_cases[i].pins[rank]), "case %zu, rank %d: %s", i, rank,
                          text);
        }
    }
}
END_TEST

/* Caches that the pinned threads of a process lie on. */
static int count_caches(const struct topology *t, const struct placement *p)
{
    bool seen[64] = {false};
    int n = 0;
    for (int k = 0; k < p->n_threads; k++) {
        const struct topology_cpu *cpu = t->cpus;
        while (cpu->cpu != p->cpus[k])
            cpu++;
        n += !seen[cpu->cache];
        seen[cpu->cache] = true;
    }
    return n;
}

/* Two sockets with eight caches of eight cores each. */
START_TEST(ranks_of_a_large_server_divide_its_caches)
{
    static const char server[] = "AAAAAAAABBBBBBBBCCCCCCCCDDDDDDDDEEEEEEEEFFFFFFFFGGGGGGGGHHHHHHHH|"
                                 "IIIIIIIIJJJJJJJJKKKKKKKKLLLLLLLLMMMMMMMMNNNNNNNNOOOOOOOOPPPPPPPP";
    struct topology t = drawn(server, 2);
    for (int n = 2; n <= 64; n *= 2) {
        bool used[256] = {false};
        for (int rank = 0; rank < n; rank++) {
            struct error err;
            struct placement p;
            const struct placement_wish wish = {.n_sharing = n, .sharing = rank, .is_safe = true};
            CHECK_OK(placement_choose(&p, &t, &wish, &err));
            ck_assert(p.is_pinned && p.n_threads == 128 / n);
            ck_assert_int_eq(count_caches(&t, &p), n < 16 ? 16 / n : 1);
            for (int k = 0; k < p.n_threads; k++) {
                ck_assert_int_lt(p.cpus[k], 128); /* one thread a core */
                ck_assert(!used[p.cpus[k]]);
                used[p.cpus[k]] = true;
            }
        }
    }
}
END_TEST

static struct placement_fact fact(uint64_t host, uint8_t mask)
{
    return (struct placement_fact){.host = host, .mask = {mask}};
}

static void check_meeting(const struct placement_fact *facts, int n, int me, int n_sharing,
                          int sharing, bool is_safe)
{
    struct placement_wish wish = {0};
    placement_meet(&wish, facts, n, me);
    ck_assert_msg(wish.n_sharing == n_sharing && wish.sharing == sharing && wish.is_safe == is_safe,
                  "%d: %d of %d, safe %d", me, wish.sharing, wish.n_sharing, wish.is_safe);
}

START_TEST(meeting_tells_who_shares_the_same_cpus)
{
    const struct placement_fact open[] = {fact(1, 15), fact(2, 15), fact(1, 15)};
    check_meeting(open, 3, 0, 2, 0, true);
    check_meeting(open, 3, 1, 1, 0, false); /* alone on its host */
    check_meeting(open, 3, 2, 2, 1, true);
    const struct placement_fact sockets[] = {fact(1, 3), fact(1, 3), fact(1, 12), fact(1, 12)};
    check_meeting(sockets, 4, 3, 2, 1, true);
    const struct placement_fact bound[] = {fact(1, 1), fact(1, 2)};
    check_meeting(bound, 2, 1, 1, 0, true);
    const struct placement_fact overlapping[] = {fact(1, 3), fact(1, 2)};
    check_meeting(overlapping, 2, 0, 2, 0, false);
    check_meeting(overlapping, 2, 1, 2, 1, false);
}
END_TEST

START_TEST(lists_that_make_no_sense_are_refused)
{
    static const char *const bad[] = {"", "x", "0,", "-1", "0;1", "1024", "0,,1", "99999999999"};
    struct error err;
    struct placement p;
    struct placement_wish wish = {.n_sharing = 1};
    struct topology t = machine(4, 1, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(placement_parse_pin(&wish, bad[i], &err), ERR_ARGUMENT, "--pin");
    }
    CHECK_OK(placement_parse_pin(&wish, "off", &err));
    ck_assert_int_eq(wish.pin, PIN_OFF);
    CHECK_OK(placement_parse_pin(&wish, "auto", &err));
    ck_assert_int_eq(wish.pin, PIN_AUTO);
    CHECK_OK(placement_parse_pin(&wish, "2,9", &err));
    CHECK_ERR(placement_choose(&p, &t, &wish, &err), ERR_ARGUMENT, "may not run on CPU 9");
    CHECK_OK(placement_parse_pin(&wish, "2,2", &err));
    CHECK_ERR(placement_choose(&p, &t, &wish, &err), ERR_ARGUMENT, "CPU 2 twice");
    CHECK_OK(placement_parse_pin(&wish, "2", &err));
    wish.n_threads = 2;
    CHECK_ERR(placement_choose(&p, &t, &wish, &err), ERR_ARGUMENT, "1 CPUs for 2 threads");
}
END_TEST

START_TEST(a_long_list_is_cut_when_shown)
{
    char text[12];
    struct placement p = {.n_threads = 9, .is_pinned = true};
    for (int i = 0; i < 9; i++)
        p.cpus[i] = 100 + i;
    ck_assert_str_eq(placement_show(&p, text, sizeof text), "100,101,102");
}
END_TEST

START_TEST(texts_of_the_kernel_are_read)
{
    ck_assert_int_eq(topology_parse_quota("max 100000\n"), 0);
    ck_assert_int_eq(topology_parse_quota("250000 100000\n"), 2);
    ck_assert_int_eq(topology_parse_quota("50000 100000\n"), 1);
    ck_assert_int_eq(topology_parse_quota("100000"), 0);
    ck_assert_int_eq(topology_parse_quota("100000 0\n"), 0);
    ck_assert_int_eq(topology_parse_quota(""), 0);
    ck_assert_int_eq(topology_parse_quota("-1 100000"), 0);
    ck_assert_int_eq(topology_parse_first("0,64\n"), 0);
    ck_assert_int_eq(topology_parse_first("12-13\n"), 12);
    ck_assert_int_eq(topology_parse_first(""), -1);
    ck_assert_int_eq(topology_parse_first("99999999999999999999"), -1);
}
END_TEST

START_TEST(this_machine_has_cpus_and_a_thread_can_be_kept_on_one)
{
    struct error err;
    static struct topology t, now;
    topology_read(&t);
    ck_assert_int_ge(t.n_cpus, 1);
    ck_assert_int_ge(topology_cores(&t), 1);
    ck_assert_int_le(topology_cores(&t), t.n_cpus);
    int last = t.cpus[t.n_cpus - 1].cpu;
    CHECK_OK(placement_enter(last, &err));
    topology_read(&now);
    ck_assert_int_eq(now.n_cpus, 1);
    ck_assert_int_eq(now.cpus[0].cpu, last);
    placement_leave(&t);
    topology_read(&now);
    ck_assert_int_eq(now.n_cpus, t.n_cpus);
    ck_assert_uint_eq(now.host, t.host);
    CHECK_ERR(placement_enter(1023, &err), ERR_IO, "CPU 1023");
    CHECK_OK(placement_enter(-1, &err));
    struct placement p = {.is_confined = true};
    p.mask[last / 8] = (uint8_t)(1u << (last % 8));
    CHECK_OK(placement_confine(&p, &err));
    topology_read(&now);
    ck_assert_int_eq(now.n_cpus, 1);
    placement_leave(&t);
    memset(p.mask, 0, sizeof p.mask);
    CHECK_ERR(placement_confine(&p, &err), ERR_IO, "within:");
    p.is_confined = false;
    CHECK_OK(placement_confine(&p, &err));
    topology_read(&now);
    ck_assert_int_eq(now.n_cpus, t.n_cpus);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement");
    TCase *tcase = tcase_create("placement");
    tcase_add_test(tcase, placement_follows_the_table);
    tcase_add_test(tcase, placement_never_puts_two_processes_on_one_core);
    tcase_add_test(tcase, ranks_are_placed_on_cores_that_share_a_cache);
    tcase_add_test(tcase, ranks_of_a_large_server_divide_its_caches);
    tcase_add_test(tcase, meeting_tells_who_shares_the_same_cpus);
    tcase_add_test(tcase, lists_that_make_no_sense_are_refused);
    tcase_add_test(tcase, a_long_list_is_cut_when_shown);
    tcase_add_test(tcase, texts_of_the_kernel_are_read);
    tcase_add_test(tcase, this_machine_has_cpus_and_a_thread_can_be_kept_on_one);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
