/* ctest: labels=quick,slow libs=coordinator fail_alloc=yes timeout=120 */
/* Opening a coordinator while memory is short: each allocation of our own, and of the libraries
 * that report it, fails once. No worker is needed: the coordinator calls it only when it runs. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "coordinator/coordinator.h"
#include "model/tokenizer/token_counts.h"
#include "rpc/common.h"
#include "tests/support/fail_alloc.h"

enum { N_COUNTED = 200 };

#define TALES SOURCE_DIR "/deploy/models/tales/draft"

static char folder[64], listen_address[128], list[128], head[160];

/* gRPC stays open, since its own start and end are not what is tested; a list of token counts. */
static void setup(void)
{
    struct error err;
    struct tokenizer *tok;
    struct token_counts counts;
    log_open("test", LOG_LEVEL_ERROR);
    rpc_library_open();
    snprintf(folder, sizeof folder, "/tmp/outrider-no-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(listen_address, sizeof listen_address, "unix:%s/socket", folder);
    snprintf(list, sizeof list, "%s/list", folder);
    snprintf(head, sizeof head, "%s:100", list);
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    CHECK_OK(token_counts_init(&counts, tok, &err));
    for (int i = 0; i < N_COUNTED; i++) {
        counts.counts[i * 3] = 1;
    }
    CHECK_OK(token_counts_write(&counts, list, &err));
    token_counts_free(&counts);
    tokenizer_close(tok);
}

static void teardown(void)
{
    unlink(list);
    ck_assert_int_eq(rmdir(folder), 0);
    rpc_library_close();
}

static int open_and_close(void *arg, struct error *err)
{
    struct coordinator *coordinator = NULL;
    int rc = coordinator_open(&coordinator, arg, err);
    coordinator_close(coordinator);
    return rc;
}

static const struct target_list targets = {
    .addresses = {"unix:/nowhere/rank0", "unix:/nowhere/rank1"}, .n_addresses = 2};

static struct coordinator_options options_of(const char *draft)
{
    return (struct coordinator_options){
        .http = "127.0.0.1:0",
        .http_connections = 16,
        .listen = listen_address,
        .targets = &targets,
        .n_groups = 2,
        .draft = draft,
        .lookup = "session,store,recycled,lookahead",
        .store_tokens = 4096,
        .backend = {.device = "cpu", .kernels = "auto", .n_threads = 2},
        .n_draft = -1,
        .strategy = STRATEGY_PLANNED,
        .support = 64,
        .draft_kv_tokens = 256,
        .n_sequences = 4,
        .step_stretch = 2,
        .queue_capacity = 4,
        .step_timeout_s = 1,
        .max_prompt_bytes = 4096,
    };
}

static void fail_each(const char *what, struct coordinator_options options, int kinds, long step)
{
    fail_alloc_each(what, open_and_close, &options, kinds, step);
}

START_TEST(a_coordinator_with_a_synthetic_draft_survives_each_failure)
{
    fail_each("synthetic draft", options_of("synthetic:tiny,seed=7"), FAIL_ALL, FAIL_ALLOC_STEP);
}
END_TEST

START_TEST(a_coordinator_with_the_shipped_draft_survives_each_failure)
{
    struct coordinator_options options = options_of(TALES);
    options.count_tokens = list;
    options.draft_vocabulary = head;
    fail_each("shipped draft, counted tokens, part of a head", options, FAIL_OURS, FAIL_ALLOC_STEP);
    fail_each("shipped draft, libraries", options, FAIL_LIBRARIES, 997);
}
END_TEST

START_TEST(a_coordinator_without_a_draft_survives_each_failure)
{
    struct coordinator_options options = options_of("none");
    options.tokenizer = "synthetic:tiny,seed=7";
    fail_each("no draft", options, FAIL_ALL, FAIL_ALLOC_STEP);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator without memory");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, a_coordinator_with_a_synthetic_draft_survives_each_failure);
    tcase_add_test(all, a_coordinator_with_the_shipped_draft_survives_each_failure);
    tcase_add_test(all, a_coordinator_without_a_draft_survives_each_failure);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
