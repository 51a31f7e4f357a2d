/* ctest: labels=quick,threads libs=access timeout=60 */
/* API keys: each bad line with its sentence, who is let in, how long an answer takes, limits, and
 * reading the file again. */
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/authorization.h"
#include "access/keys.h"
#include "tests/support/check_util.h"

enum { N_HOLDERS = 3, N_THREADS = 4, N_RELOADS = 200, TEXT_BYTES = 4096 };

static const char hash_a[] = "559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd";
static const char hash_b[] = "df7e70e5021544f4834bbee64a9e3789febc4be81470df629cad6ddb03320a5c";
static const char hash_c[] = "6b23c0d5f35d1b11f9b683f0b0a617355deb11277d91ae091d399c655b87940d";
/* They are SHA-256 of "A", "B" and "C", by sha256sum. */

static _Thread_local struct error err;
static struct key_list list;
static struct keys *keys;
static struct grant *grant;
static char path[64];
static int n_compared;

/* Takes the place of libcrypto's, so that every comparison is seen. */
int CRYPTO_memcmp(const void *a, const void *b, size_t len)
{
    n_compared++;
    ck_assert_uint_eq(len, KEY_HASH_BYTES);
    return memcmp(a, b, len);
}

/* ---- lines ---- */

static int parse(const char *text)
{
    key_list_free(&list);
    return key_list_parse(&list, text, strlen(text), "file", &err);
}

/* $A, $B and $C stand for the hashes. */
static const char *expand(const char *text)
{
    static char out[TEXT_BYTES];
    size_t n = 0;
    for (const char *at = text; *at; at++) {
        const char *hash = at[0] != '$'   ? NULL
                           : at[1] == 'A' ? hash_a
                           : at[1] == 'B' ? hash_b
                                          : hash_c;
        if (hash) at++;
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s", hash ? 64 : 1, hash ? hash : at);
        ck_assert_uint_lt(n, sizeof out);
    }
    return out;
}

START_TEST(lines_are_read_with_blanks_comments_and_fields)
{
    CHECK_OK(parse(expand("# names and hashes\n"
                          "\n"
                          " alice\t$A  weight=4 max_jobs=8 max_priority=normal # the first\r\n"
                          "   # none\n"
                          "b.o-b_2 $B")));
    ck_assert_int_eq(list.n, 2);
    const struct key_entry *alice = &list.entries[0], *bob = &list.entries[1];
    ck_assert_str_eq(alice->name, "alice");
    ck_assert_int_eq(alice->weight, 4);
    ck_assert_int_eq(alice->max_jobs, 8);
    ck_assert_int_eq(alice->max_priority, KEY_PRIORITY_NORMAL);
    ck_assert_int_eq(alice->line, 3);
    ck_assert_str_eq(bob->name, "b.o-b_2");
    ck_assert_int_eq(bob->weight, 0);
    ck_assert_int_eq(bob->max_jobs, 0);
    ck_assert_int_eq(bob->max_priority, KEY_PRIORITY_HIGH);
    uint8_t hash[KEY_HASH_BYTES];
    key_hash("B", 1, hash);
    ck_assert_mem_eq(bob->hash, hash, sizeof hash);
    CHECK_OK(parse(""));
    ck_assert_int_eq(list.n, 0);
    key_list_free(&list);
}
END_TEST

START_TEST(bad_line_is_named_with_what_is_wrong)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"al!ce $A", "file:1: 'al!ce' is no name of a key"},
        {"0123456789012345678901234567890123456789012345678901234567890123x $A", "1 to 64 letters"},
        {"alice", "file:1: '' is no hash"},
        {"alice secret", "'secret' is no hash of a key: it must have 64 digits"},
        {"alice 559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdff", "is no hash"},
        {"alice $A0", "is no hash"},
        {"alice 559AEAD08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd", "is no hash"},
        {"\nalice $A weigth=4", "file:2: 'weigth' is no field: weight=W, max_jobs=N"},
        {"alice $A weight", "'weight' is no field"},
        {"alice $A weight=", "weight: '' is not a whole number from 1 to 1000"},
        {"alice $A weight=0", "weight: '0' is not a whole number"},
        {"alice $A weight=1001", "weight: '1001' is not"},
        {"alice $A max_jobs=-1", "max_jobs: '-1' is not"},
        {"alice $A max_priority=urgent", "max_priority: 'urgent'"},
        {"alice $A\nbob $B\nalice $C", "file:3: the name 'alice' is in line 1 already"},
        {"alice $A\nbob $A", "file:2: the key of 'bob' is that of line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(parse(expand(cases[i].text)), ERR_FORMAT, cases[i].part);
        ck_assert_ptr_null(list.entries);
    }
}
END_TEST

START_TEST(line_that_is_no_text_is_refused)
{
    char text[TEXT_BYTES];
    memset(text, ' ', sizeof text);
    CHECK_ERR(key_list_parse(&list, text, 512, "file", &err), ERR_FORMAT, "at most 511 bytes");
    CHECK_OK(key_list_parse(&list, text, 511, "file", &err));
    text[3] = '\0';
    CHECK_ERR(key_list_parse(&list, text, 10, "file", &err), ERR_FORMAT, "is no text");
}
END_TEST

START_TEST(entry_that_is_written_is_read_as_it_was)
{
    static const char *const lines[] = {"alice $A\n", "bob $B weight=3\n", "c $C max_jobs=1\n",
                                        "d $A weight=1 max_jobs=1000000 max_priority=low\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[KEY_LINE_BYTES];
        CHECK_OK(parse(expand(lines[i])));
        key_entry_text(&list.entries[0], text);
        ck_assert_str_eq(text, expand(lines[i]));
    }
    key_list_free(&list);
}
END_TEST

START_TEST(keys_that_are_made_differ_and_have_one_form)
{
    char one[KEY_TEXT_BYTES], other[KEY_TEXT_BYTES];
    CHECK_OK(key_make(one, &err));
    CHECK_OK(key_make(other, &err));
    ck_assert_str_ne(one, other);
    ck_assert_uint_eq(strlen(one), KEY_TEXT_BYTES - 1);
    ck_assert_int_eq(strncmp(one, "or-", 3), 0);
    ck_assert_uint_eq(strspn(one + 3, "0123456789abcdef"), 64);
}
END_TEST

/* ---- keys of a server ---- */

/* Under its name as a whole. */
static void write_file(const char *text)
{
    char made[sizeof path + 8];
    snprintf(made, sizeof made, "%s.new", path);
    FILE *file = fopen(made, "w");
    ck_assert_ptr_nonnull(file);
    fputs(expand(text), file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(made, path), 0);
}

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/test_keys_%d", (int)getpid());
    umask(022);
    write_file("alice $A weight=4 max_jobs=2\nbob $B\ncarol $C max_priority=low\n");
    CHECK_OK(keys_open(&keys, path, &err));
}

static void teardown(void)
{
    keys_close(keys);
    grant_release(grant);
    unlink(path);
}

static int find(const char *key)
{
    grant_release(grant);
    return keys_find(keys, key, strlen(key), &grant, &err);
}

START_TEST(known_key_gives_its_holder)
{
    CHECK_OK(find("A"));
    ck_assert_str_eq(grant->name, "alice");
    ck_assert_int_eq(grant->weight, 4);
    ck_assert_int_eq(grant->max_jobs, 2);
    CHECK_OK(find("C"));
    ck_assert_str_eq(grant->name, "carol");
    ck_assert_int_eq(grant->max_priority, KEY_PRIORITY_LOW);
}
END_TEST

START_TEST(unknown_key_gives_nobody)
{
    static const char *const wrong[] = {"", "a", "AA", "alice", "A "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_ERR(find(wrong[i]), ERR_UNAUTHENTICATED, "the API key is not known here");
        ck_assert_ptr_null(grant);
    }
    CHECK_ERR(find(hash_a), ERR_UNAUTHENTICATED, "not known");
}
END_TEST

START_TEST(every_search_compares_all_keys_in_constant_time)
{
    static const char *const all[] = {"A", "B", "C", "unknown"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        n_compared = 0;
        find(all[i]);
        ck_assert_int_eq(n_compared, N_HOLDERS);
    }
}
END_TEST

static int authorize(const char *header)
{
    grant_release(grant);
    return keys_authorize(keys, header, header ? strlen(header) : 0, &grant, &err);
}

START_TEST(header_must_be_a_bearer_of_a_key)
{
    CHECK_OK(authorize("Bearer B"));
    ck_assert_str_eq(grant->name, "bob");
    CHECK_OK(authorize("bearer B"));
    CHECK_ERR(authorize(NULL), ERR_UNAUTHENTICATED, "send it as 'authorization: Bearer KEY'");
    CHECK_ERR(authorize(""), ERR_UNAUTHENTICATED, "is not 'Bearer KEY'");
    CHECK_ERR(authorize("Bearer "), ERR_UNAUTHENTICATED, "is not 'Bearer KEY'");
    CHECK_ERR(authorize("Digest B"), ERR_UNAUTHENTICATED, "is not 'Bearer KEY'");
    CHECK_ERR(authorize("Bearer b"), ERR_UNAUTHENTICATED, "not known");
    ck_assert_int_eq(keys_refused(keys), 5);
    ck_assert_int_eq(keys_refused(NULL), 0);
    CHECK_OK(keys_authorize(NULL, NULL, 0, &grant, &err));
    ck_assert_ptr_null(grant);
}
END_TEST

START_TEST(password_of_basic_is_a_key)
{
    static const char *const right[] = {
        "Basic OkI=",         /* :B */
        "basic OkI=",         /* :B */
        "Basic dXNlcjpC",     /* user:B */
        "Basic w7xzw6lyOkI=", /* a user beyond ASCII */
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        CHECK_OK(authorize(right[i]));
        ck_assert_str_eq(grant->name, "bob");
    }
    CHECK_ERR(authorize("Basic dXNlcjo="), ERR_UNAUTHENTICATED, "not known"); /* user: */
    CHECK_ERR(authorize("Basic Ojpi"), ERR_UNAUTHENTICATED, "not known");     /* ::b */
    CHECK_ERR(authorize("Basic OkIA"), ERR_UNAUTHENTICATED, "not known");     /* :B and a NUL */
}
END_TEST

START_TEST(basic_that_is_malformed_is_refused)
{
    static const char *const wrong[] = {
        "Basic B",        "Basic OkI",   "Basic Ok=I",       "Basic OkI==",
        "Basic ====",     "Basic O*I=",  "Basic  OkI=",      "Basic OkI= ",
        "Basic dXNlckI=", "Basic OkI\n", "Basic Ok\xc3\xbc", "Basic =",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_ERR(authorize(wrong[i]), ERR_UNAUTHENTICATED, "base64 of USER:KEY");
        ck_assert_ptr_null(grant);
    }
    CHECK_ERR(authorize("Basic "), ERR_UNAUTHENTICATED, "is not 'Bearer KEY'");
}
END_TEST

/* Authorizes a user whose name makes USER:B as long as n * 3 bytes. */
static int authorize_long(int n)
{
    char header[4096] = "Basic ";
    for (int i = 0; i < n - 1; i++) {
        strcat(header, "YWFh"); /* aaa */
    }
    strcat(header, "YTpC"); /* a:B */
    return authorize(header);
}

START_TEST(basic_that_is_too_long_is_refused)
{
    CHECK_OK(authorize_long(BASIC_BYTES_MAX / 3));
    CHECK_ERR(authorize_long(BASIC_BYTES_MAX / 3 + 1), ERR_UNAUTHENTICATED, "at most 1200 bytes");
    CHECK_ERR(authorize_long(1000), ERR_UNAUTHENTICATED, "at most 1200 bytes");
}
END_TEST

START_TEST(holder_has_as_many_jobs_as_the_key_allows)
{
    CHECK_OK(find("A"));
    CHECK_OK(grant_enter(grant, &err));
    CHECK_OK(grant_enter(grant, &err));
    CHECK_ERR(grant_enter(grant, &err), ERR_EXHAUSTED, "of 'alice' allows 2 requests at once");
    grant_leave(grant);
    CHECK_OK(grant_enter(grant, &err));
    CHECK_OK(find("B"));
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(grant_enter(grant, &err));
    }
}
END_TEST

START_TEST(file_that_is_read_again_changes_keys_and_limits)
{
    CHECK_OK(find("A"));
    struct grant *alice = grant;
    grant = NULL;
    CHECK_OK(grant_enter(alice, &err));
    write_file("alice $C weight=7 max_jobs=1\n"); /* another key for the same holder */
    keys_reload(keys);
    CHECK_ERR(find("A"), ERR_UNAUTHENTICATED, "not known");
    CHECK_ERR(find("B"), ERR_UNAUTHENTICATED, "not known");
    CHECK_OK(find("C"));
    ck_assert_ptr_eq(grant, alice);
    ck_assert_int_eq(alice->weight, 7);
    CHECK_ERR(grant_enter(grant, &err), ERR_EXHAUSTED, "allows 1 request");
    write_file("# nobody\n");
    keys_reload(keys);
    CHECK_ERR(find("C"), ERR_UNAUTHENTICATED, "not known");
    grant_leave(alice); /* it outlives its key */
    grant_release(alice);
}
END_TEST

START_TEST(bad_file_changes_nothing)
{
    write_file("alice $A\nbob\n");
    keys_reload(keys);
    CHECK_OK(find("B"));
    unlink(path);
    keys_reload(keys);
    CHECK_OK(find("B"));
    write_file("bob $A\n");
    chmod(path, 0620);
    keys_reload(keys);
    CHECK_OK(find("B"));
    chmod(path, 0640);
    keys_reload(keys);
    CHECK_ERR(find("B"), ERR_UNAUTHENTICATED, "not known");
    keys_reload(NULL);
}
END_TEST

START_TEST(file_that_cannot_be_used_is_refused_at_the_start)
{
    struct keys *other;
    CHECK_ERR(keys_open(&other, "/tmp/no/such/file", &err), ERR_NOT_FOUND, "/tmp/no/such/file");
    CHECK_ERR(keys_open(&other, "/tmp", &err), ERR_FORMAT, "/tmp");
    chmod(path, 0602);
    CHECK_ERR(keys_open(&other, path, &err), ERR_FORMAT, "can be written by others than its owner");
    write_file("alice\n");
    CHECK_ERR(keys_open(&other, path, &err), ERR_FORMAT, ":1: '' is no hash");
    ck_assert_ptr_null(other);
}
END_TEST

static void *find_often(void *is_ended)
{
    while (!atomic_load((atomic_bool *)is_ended)) {
        struct grant *found;
        CHECK_OK(keys_find(keys, "B", 1, &found, &err));
        CHECK_OK(grant_enter(found, &err));
        grant_leave(found);
        grant_release(found);
    }
    return NULL;
}

START_TEST(many_threads_find_keys_while_the_file_is_read_again)
{
    pthread_t threads[N_THREADS];
    atomic_bool is_ended = false;
    for (int i = 0; i < N_THREADS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, find_often, &is_ended), 0);
    }
    for (int i = 0; i < N_RELOADS; i++) {
        write_file(i % 2 ? "bob $B\n" : "alice $A\nbob $B weight=3\n");
        keys_reload(keys);
    }
    atomic_store(&is_ended, true);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("api_keys");
    TCase *lines = tcase_create("lines");
    tcase_add_test(lines, lines_are_read_with_blanks_comments_and_fields);
    tcase_add_test(lines, bad_line_is_named_with_what_is_wrong);
    tcase_add_test(lines, line_that_is_no_text_is_refused);
    tcase_add_test(lines, entry_that_is_written_is_read_as_it_was);
    tcase_add_test(lines, keys_that_are_made_differ_and_have_one_form);
    suite_add_tcase(suite, lines);
    TCase *server = tcase_create("server");
    tcase_add_checked_fixture(server, setup, teardown);
    tcase_add_test(server, known_key_gives_its_holder);
    tcase_add_test(server, unknown_key_gives_nobody);
    tcase_add_test(server, every_search_compares_all_keys_in_constant_time);
    tcase_add_test(server, header_must_be_a_bearer_of_a_key);
    tcase_add_test(server, password_of_basic_is_a_key);
    tcase_add_test(server, basic_that_is_malformed_is_refused);
    tcase_add_test(server, basic_that_is_too_long_is_refused);
    tcase_add_test(server, holder_has_as_many_jobs_as_the_key_allows);
    tcase_add_test(server, file_that_is_read_again_changes_keys_and_limits);
    tcase_add_test(server, bad_file_changes_nothing);
    tcase_add_test(server, file_that_cannot_be_used_is_refused_at_the_start);
    tcase_add_test(server, many_threads_find_keys_while_the_file_is_read_again);
    suite_add_tcase(suite, server);
    return check_main(suite);
}
