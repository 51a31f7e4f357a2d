/* ctest: labels=quick libs=coordinator timeout=60 */
/* Sharing of KV blocks by texts that begin alike. There is no KV here: memory[block] says for which
 * text a block was written, and a text may only ever be given blocks that were written for it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/kv/prefix_cache.h"
#include "tests/support/check_util.h"

enum {
    TOKENS = 16,
    N_BLOCKS = 70, /* the last group is not whole */
    N_TEXTS = 9,
    LONGEST = 20, /* blocks of a text */
    N_TURNS = 20000
};

static struct block_pool pool;
static struct error err;

/* A text, and the table that holds it. */
struct text {
    struct block_table table;
    int32_t tokens[LONGEST * TOKENS];
    int n_tokens, n_kv;
};
static struct text texts[N_TEXTS];

/* The content of a block: the text up to its end, as far as it was written. */
struct written {
    int32_t tokens[LONGEST * TOKENS];
    int first, n; /* of its positions */
};
static struct written memory[N_BLOCKS];

static void setup(void)
{
    CHECK_OK(block_pool_open(&pool, N_BLOCKS, TOKENS, &err));
    for (int i = 0; i < N_TEXTS; i++) {
        texts[i] = (struct text){0};
        CHECK_OK(block_table_open(&texts[i].table, N_BLOCKS, &err));
    }
}

static void teardown(void)
{
    for (int i = 0; i < N_TEXTS; i++) {
        block_table_close(&texts[i].table);
    }
    block_pool_close(&pool);
}

/* ---- texts ---- */

/* Block after block of one token each, as the letters say. */
static void spell(struct text *text, const char *letters)
{
    text->n_tokens = (int)strlen(letters) * TOKENS;
    for (int i = 0; i < text->n_tokens; i++) {
        text->tokens[i] = letters[i / TOKENS];
    }
}

/* Gives the text what is known of its beginning, which must have been written for it. Returns the
 * number of blocks. */
static int take(struct text *text, int n_tokens)
{
    int n = prefix_cache_take(&text->table, &pool, text->tokens, n_tokens);
    ck_assert(n == text->table.n * TOKENS);
    ck_assert(text->table.n <= (n_tokens > 0 ? (n_tokens - 1) / TOKENS : 0));
    for (int b = 0; b < text->table.n; b++) {
        const struct written *written = &memory[text->table.blocks[b]];
        ck_assert(written->first == b * TOKENS);
        ck_assert(written->n == TOKENS);
        ck_assert(
            memcmp(written->tokens, text->tokens, (size_t)(b + 1) * TOKENS * sizeof(int32_t)) == 0);
    }
    text->n_kv = n;
    return text->table.n;
}

/* Writes the text up to position n_kv and publishes it. Only blocks that nobody else holds or can
 * find may be written to. */
static int feed(struct text *text, int n_kv)
{
    int rc = block_table_reach(&text->table, &pool, n_kv, &err);
    if (rc) return rc;
    for (int i = text->n_kv; i < n_kv; i++) {
        int block = text->table.blocks[i / TOKENS];
        ck_assert(pool.blocks[block].n_refs == 1 && !pool.blocks[block].serial);
        struct written *written = &memory[block];
        written->first = i / TOKENS * TOKENS;
        written->n = i - written->first + 1;
        memcpy(written->tokens, text->tokens, ((size_t)i + 1) * sizeof(int32_t));
    }
    text->n_kv = n_kv;
    prefix_cache_publish(&text->table, &pool, text->tokens, n_kv);
    return 0;
}

static void release(struct text *text)
{
    block_table_release(&text->table, &pool);
    ck_assert(text->table.n == 0 && text->table.n_known == 0 && text->table.serial == 0);
    text->n_kv = 0;
}

/* The text is served from its beginning to its end and leaves. Returns the blocks it was given. */
static int serve(struct text *text, const char *letters)
{
    spell(text, letters);
    int n = take(text, text->n_tokens);
    CHECK_OK(feed(text, text->n_tokens));
    release(text);
    return n;
}

/* ---- what always holds ---- */

static void expect_refs(void)
{
    int refs[N_BLOCKS] = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        for (int b = 0; b < texts[i].table.n; b++) {
            refs[texts[i].table.blocks[b]]++;
        }
    }
    for (int i = 0; i < N_BLOCKS; i++) {
        ck_assert(pool.blocks[i].n_refs == refs[i]);
    }
}

/* The list by last use holds each published block that no table holds, once, in both directions. */
static void expect_list(const bool *is_cached)
{
    int n = 0, last = -1;
    for (int i = pool.oldest; i >= 0; last = i, i = pool.blocks[i].newer, n++) {
        ck_assert(n < N_BLOCKS && is_cached[i]);
        ck_assert(pool.blocks[i].older == last);
    }
    ck_assert(pool.newest == last);
    ck_assert(n == pool.n_cached);
}

static void expect_buckets(int n_published)
{
    int n = 0;
    for (int b = 0; b < pool.n_buckets; b++) {
        for (int i = pool.buckets[b]; i >= 0; i = pool.blocks[i].next, n++) {
            ck_assert(n < N_BLOCKS && pool.blocks[i].serial);
        }
    }
    ck_assert(n == n_published);
}

static void expect_sound(void)
{
    bool is_cached[N_BLOCKS];
    int n_free = 0, n_cached = 0, n_held = 0, n_published = 0;
    for (int i = 0; i < N_BLOCKS; i++) {
        const struct block *block = &pool.blocks[i];
        bool is_free = pool.free[i / BLOCK_GROUP] >> i % BLOCK_GROUP & 1;
        is_cached[i] = block->serial && block->n_refs == 0;
        ck_assert(is_free + is_cached[i] + (block->n_refs > 0) == 1);
        n_free += is_free;
        n_cached += is_cached[i];
        n_held += block->n_refs > 0;
        n_published += block->serial != 0;
    }
    ck_assert(n_free == pool.n_free);
    ck_assert(n_cached == pool.n_cached);
    ck_assert(n_free + n_cached + n_held == N_BLOCKS);
    expect_refs();
    expect_list(is_cached);
    expect_buckets(n_published);
}

/* ---- sharing ---- */

START_TEST(the_last_token_is_always_left_to_be_read)
{
    static const int cases[][2] = {{0, 0},  {1, 0},  {16, 0}, {17, 1}, {32, 1},
                                   {33, 2}, {48, 2}, {49, 3}, {64, 3}};
    serve(&texts[0], "abcd");
    spell(&texts[1], "abcd");
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        ck_assert_int_eq(take(&texts[1], cases[i][0]), cases[i][1]);
        expect_sound();
        release(&texts[1]);
    }
}
END_TEST

START_TEST(texts_share_what_they_have_in_common)
{
    spell(&texts[0], "abcde");
    ck_assert_int_eq(take(&texts[0], texts[0].n_tokens), 0);
    CHECK_OK(feed(&texts[0], texts[0].n_tokens));
    spell(&texts[1], "abcxe");
    ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), 3);
    spell(&texts[2], "bcde"); /* the same blocks, but not from the beginning */
    ck_assert_int_eq(take(&texts[2], texts[2].n_tokens), 0);
    for (int b = 0; b < 3; b++) {
        ck_assert_int_eq(texts[1].table.blocks[b], texts[0].table.blocks[b]);
        ck_assert_int_eq(pool.blocks[texts[0].table.blocks[b]].n_refs, 2);
    }
    CHECK_OK(feed(&texts[1], texts[1].n_tokens));
    ck_assert_int_ne(texts[1].table.blocks[4], texts[0].table.blocks[4]); /* e after x */
    expect_sound();
    release(&texts[0]);
    ck_assert_int_eq(pool.blocks[texts[1].table.blocks[0]].n_refs, 1);
    ck_assert_int_eq(pool.n_cached, 2); /* d and e of the first */
    expect_sound();
}
END_TEST

/* Only full blocks are known, from the moment when their last position has been written. */
START_TEST(a_block_in_the_making_is_not_shared)
{
    spell(&texts[0], "abc");
    spell(&texts[1], "abc");
    CHECK_OK(feed(&texts[0], 31));
    ck_assert_int_eq(take(&texts[1], 48), 1);
    release(&texts[1]);
    CHECK_OK(feed(&texts[0], 32));
    ck_assert_int_eq(take(&texts[1], 48), 2);
    expect_sound();
}
END_TEST

START_TEST(a_text_that_is_published_twice_is_kept_once)
{
    for (int i = 0; i < 2; i++) {
        spell(&texts[i], "abcd");
    }
    for (int n = 8; n <= 64; n += 8) { /* side by side, as two lanes of one step */
        CHECK_OK(feed(&texts[0], n));
        CHECK_OK(feed(&texts[1], n));
    }
    expect_sound();
    for (int b = 0; b < 4; b++) {
        ck_assert_int_ne(texts[0].table.blocks[b], texts[1].table.blocks[b]);
        ck_assert(pool.blocks[texts[0].table.blocks[b]].serial);
        ck_assert(!pool.blocks[texts[1].table.blocks[b]].serial);
    }
    release(&texts[1]);
    ck_assert_int_eq(pool.n_cached, 0);
    release(&texts[0]);
    ck_assert_int_eq(pool.n_cached, 4);
    spell(&texts[2], "abcde");
    ck_assert_int_eq(take(&texts[2], texts[2].n_tokens), 4);
    expect_sound();
}
END_TEST

/* ---- collisions ---- */

/* With one bucket every hash is equal, so only tokens and parents tell blocks apart. */
START_TEST(blocks_whose_hashes_collide_are_not_confused)
{
    static const char letters[] = "abcdefgh";
    pool.n_buckets = 1;
    block_pool_reset(&pool);
    for (int i = 0; i < 8; i++) {
        const char text[] = {letters[i], letters[(i + 1) % 8], letters[i], 'z', '\0'};
        ck_assert_int_eq(serve(&texts[0], text), 0);
    }
    expect_sound();
    for (int i = 0; i < 8; i++) {
        const char other[] = {letters[i], letters[(i + 2) % 8], letters[i], 'z', '\0'};
        const char same[] = {letters[i], letters[(i + 1) % 8], letters[i], 'z', 'y', '\0'};
        spell(&texts[1], other);
        ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), 1);
        release(&texts[1]);
        spell(&texts[1], same);
        ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), 4);
        release(&texts[1]);
    }
    expect_sound();
}
END_TEST

/* Blocks that differ in a single token, at any place. */
START_TEST(every_token_of_a_block_is_compared)
{
    pool.n_buckets = 1;
    block_pool_reset(&pool);
    serve(&texts[0], "aab");
    for (int i = 0; i < 2 * TOKENS; i++) {
        spell(&texts[1], "aab");
        texts[1].tokens[i] ^= 1 << (i % 20);
        ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), i / TOKENS);
        release(&texts[1]);
    }
}
END_TEST

START_TEST(equal_tokens_after_another_parent_are_another_block)
{
    pool.n_buckets = 1;
    block_pool_reset(&pool);
    spell(&texts[0], "aaaa");
    CHECK_OK(feed(&texts[0], texts[0].n_tokens));
    for (int b = 1; b < 4; b++) {
        const struct block *block = &pool.blocks[texts[0].table.blocks[b]];
        ck_assert_uint_eq(block->parent, pool.blocks[texts[0].table.blocks[b - 1]].serial);
        ck_assert_uint_ne(block->serial, block->parent);
    }
    spell(&texts[1], "baaa");
    ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), 0);
    CHECK_OK(feed(&texts[1], texts[1].n_tokens));
    expect_sound();
    ck_assert_int_eq(pool.n_free, N_BLOCKS - 8);
}
END_TEST

/* ---- forgetting ---- */

/* A text like no other takes blocks, so that some that nobody holds are forgotten. */
static void fill(struct text *text, int n_blocks)
{
    text->n_tokens = n_blocks * TOKENS;
    for (int i = 0; i < text->n_tokens; i++) {
        text->tokens[i] = 5000 + (int32_t)(text - texts) * 1000 + i;
    }
    CHECK_OK(feed(text, text->n_tokens));
}

START_TEST(the_least_recently_used_text_is_forgotten_first)
{
    static const char *const group_texts[] = {"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb",
                                              "cccccccccccccccc", "dddddddddddddddd"};
    for (int i = 0; i < 4; i++) {
        serve(&texts[i], group_texts[i]);
    }
    spell(&texts[4], "zzzzzz");
    CHECK_OK(feed(&texts[4], 6 * TOKENS)); /* the rest of the pool */
    ck_assert_int_eq(pool.n_free, 0);
    ck_assert_int_eq(block_pool_room(&pool), 64);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(take(&texts[i], 256), 15); /* nothing was forgotten so far */
        release(&texts[i]);
    }
    take(&texts[0], 256); /* now b is the one that was used longest ago */
    release(&texts[0]);
    fill(&texts[5], 5); /* the last blocks of all four, which nobody asked for, and one of b */
    static const int left[] = {15, 0, 15, 15};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(take(&texts[i], 256), left[i]);
        expect_sound();
    }
}
END_TEST

/* A beginning that is asked for again and again is not forgotten together with the one answer that
 * lies in the same group. */
START_TEST(a_block_that_is_used_often_outlives_its_neighbours)
{
    serve(&texts[0], "abcdefgh");
    fill(&texts[1], LONGEST);
    fill(&texts[2], LONGEST);
    serve(&texts[3], "zzzzzzzzzzzzzzzz");
    spell(&texts[4], "abcx");
    ck_assert_int_eq(take(&texts[4], texts[4].n_tokens), 3);
    release(&texts[4]);
    fill(&texts[5], pool.n_free + 1);
    ck_assert_int_eq(take(&texts[4], texts[4].n_tokens), 3);
    expect_sound();
}
END_TEST

START_TEST(the_head_of_a_text_is_kept_longest)
{
    static const char whole[] = "abcdefghijklmnopabcd";
    serve(&texts[0], whole); /* a group, and 4 blocks of the next */
    spell(&texts[1], "zzzzzzzzzzzzzzzzzzzz");
    CHECK_OK(feed(&texts[1], 20 * TOKENS));
    spell(&texts[2], "yyyyyyyyyyyyyyyyyyyy");
    CHECK_OK(feed(&texts[2], 20 * TOKENS));
    spell(&texts[3], "xxxxxxxxxx");
    CHECK_OK(feed(&texts[3], (pool.n_free + 1) * TOKENS)); /* one more than is free */
    expect_sound();
    spell(&texts[4], whole);
    ck_assert_int_eq(take(&texts[4], texts[4].n_tokens), 16);
}
END_TEST

START_TEST(a_block_that_a_table_holds_is_never_forgotten)
{
    spell(&texts[0], "abc");
    CHECK_OK(feed(&texts[0], 3 * TOKENS));
    spell(&texts[1], "abcd");
    ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), 3);
    release(&texts[0]);
    struct text *rest[] = {&texts[2], &texts[3], &texts[4], &texts[5]};
    for (int i = 0; i < 4; i++) {
        int n = pool.n_free < LONGEST ? pool.n_free : LONGEST;
        spell(rest[i], "zzzzzzzzzzzzzzzzzzzz");
        CHECK_OK(feed(rest[i], n * TOKENS));
    }
    CHECK_ERR(feed(&texts[6], TOKENS), ERR_EXHAUSTED, "1 KV blocks are wanted");
    spell(&texts[7], "abcd");
    ck_assert_int_eq(take(&texts[7], texts[7].n_tokens), 3);
    expect_sound();
}
END_TEST

/* Text 1 has a block of its own for a, but its b is published after the a of text 0. That one is
 * forgotten, and its block holds x next. Then b must be found neither after x nor after an a that
 * is published anew. */
START_TEST(a_child_of_a_forgotten_block_is_never_found_again)
{
    spell(&texts[0], "a");
    spell(&texts[1], "ab");
    CHECK_OK(feed(&texts[0], TOKENS));
    CHECK_OK(feed(&texts[1], 2 * TOKENS));
    int block = texts[0].table.blocks[0];
    uint64_t serial = pool.blocks[block].serial;
    ck_assert_uint_eq(pool.blocks[texts[1].table.blocks[1]].parent, serial);
    release(&texts[0]);
    for (int i = 2; pool.n_free > 0; i++) {
        fill(&texts[i], pool.n_free < LONGEST ? pool.n_free : LONGEST);
    }
    spell(&texts[7], "x");
    CHECK_OK(feed(&texts[7], TOKENS));
    ck_assert_int_eq(texts[7].table.blocks[0], block);
    ck_assert_uint_gt(pool.blocks[block].serial, serial);
    expect_sound();
    spell(&texts[8], "xbc");
    ck_assert_int_eq(take(&texts[8], texts[8].n_tokens), 1);
    release(&texts[8]);
    release(&texts[2]);
    release(&texts[7]);
    spell(&texts[0], "a");
    CHECK_OK(feed(&texts[0], TOKENS));
    spell(&texts[8], "abc");
    ck_assert_int_eq(take(&texts[8], texts[8].n_tokens), 1);
    expect_sound();
}
END_TEST

START_TEST(a_pool_that_is_reset_knows_nothing)
{
    serve(&texts[0], "abcd");
    block_pool_reset(&pool);
    expect_sound();
    spell(&texts[1], "abcd");
    ck_assert_int_eq(take(&texts[1], texts[1].n_tokens), 0);
    ck_assert_int_eq(pool.n_free, N_BLOCKS);
}
END_TEST

/* ---- by chance ---- */

static uint32_t chance;

static int dice(int n)
{
    chance = chance * 1664525u + 1013904223u;
    return (int)((chance >> 8) % (uint32_t)n);
}

/* Two letters only, so that beginnings are often equal and so are blocks after others. */
static void write_any(struct text *text)
{
    int n_blocks = 1 + dice(LONGEST);
    for (int b = 0; b < n_blocks; b++) {
        int letter = 'a' + (dice(4) == 0);
        for (int i = 0; i < TOKENS; i++) {
            text->tokens[b * TOKENS + i] = letter;
        }
    }
    text->n_tokens = n_blocks * TOKENS - dice(TOKENS);
}

/* The published blocks that begin the text, found without any hash. */
static int count_known(const struct text *text)
{
    uint64_t parent = 0;
    int n = 0;
    for (bool more = true; more && n < (text->n_tokens - 1) / TOKENS;) {
        more = false;
        for (int i = 0; i < N_BLOCKS && !more; i++) {
            const struct block *block = &pool.blocks[i];
            more = block->serial && block->parent == parent &&
                   memcmp(pool.tokens + i * TOKENS, text->tokens + n * TOKENS,
                          TOKENS * sizeof(int32_t)) == 0;
            if (more) parent = block->serial;
        }
        n += more;
    }
    return n;
}

static void run_by_chance(uint32_t seed)
{
    int n_hits = 0, n_full = 0;
    chance = seed;
    for (int turn = 0; turn < N_TURNS; turn++) {
        struct text *text = &texts[dice(N_TEXTS)];
        if (text->n_tokens == 0) {
            write_any(text);
            int known = count_known(text);
            ck_assert_int_eq(take(text, text->n_tokens), known);
            n_hits += known > 0;
        } else if (text->n_kv == text->n_tokens || dice(8) == 0) {
            release(text);
            text->n_tokens = 0;
        } else {
            int left = text->n_tokens - text->n_kv;
            int n = text->n_kv + 1 + dice(left < 50 ? left : 50), room = block_pool_room(&pool);
            int lacking = block_table_lacks(&text->table, &pool, n);
            ck_assert_int_eq(feed(text, n), lacking <= room ? 0 : ERR_EXHAUSTED);
            n_full += lacking > room;
            if (lacking > room) release(text), text->n_tokens = 0;
        }
        expect_sound();
    }
    printf("seed %u: %d texts began with known blocks, %d found the pool full\n", seed, n_hits,
           n_full);
    ck_assert_int_gt(n_hits, 100);
    ck_assert_int_gt(n_full, 10);
}

START_TEST(texts_that_come_and_go_get_only_their_own_blocks)
{
    static const int buckets[] = {256, 4, 1};
    pool.n_buckets = buckets[_i];
    block_pool_reset(&pool);
    run_by_chance(7u + (uint32_t)_i);
    for (int i = 0; i < N_TEXTS; i++) {
        release(&texts[i]);
    }
    ck_assert_int_eq(block_pool_room(&pool), N_BLOCKS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix_cache");
    TCase *tests = tcase_create("prefix cache");
    tcase_set_timeout(tests, 280);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_last_token_is_always_left_to_be_read);
    tcase_add_test(tests, texts_share_what_they_have_in_common);
    tcase_add_test(tests, a_block_in_the_making_is_not_shared);
    tcase_add_test(tests, a_text_that_is_published_twice_is_kept_once);
    tcase_add_test(tests, blocks_whose_hashes_collide_are_not_confused);
    tcase_add_test(tests, every_token_of_a_block_is_compared);
    tcase_add_test(tests, equal_tokens_after_another_parent_are_another_block);
    tcase_add_test(tests, the_least_recently_used_text_is_forgotten_first);
    tcase_add_test(tests, a_block_that_is_used_often_outlives_its_neighbours);
    tcase_add_test(tests, the_head_of_a_text_is_kept_longest);
    tcase_add_test(tests, a_block_that_a_table_holds_is_never_forgotten);
    tcase_add_test(tests, a_child_of_a_forgotten_block_is_never_found_again);
    tcase_add_test(tests, a_pool_that_is_reset_knows_nothing);
    tcase_add_loop_test(tests, texts_that_come_and_go_get_only_their_own_blocks, 0, 3);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
