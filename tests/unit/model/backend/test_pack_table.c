/* ctest: labels=quick libs=model timeout=60 */
/* The head of a file of packed weights: what is written can be read again, and what is wrong is
 * refused. */
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "model/backend/pack_table.h"
#include "tests/support/check_util.h"

enum { N = 3, FILE_BYTES = 4 * PACK_ALIGN, HEAD_BYTES = 40, ENTRY_BYTES = 56 };

static uint8_t file[FILE_BYTES];

static void fill(void)
{
    struct pack_entry entries[N] = {
        {.identity = 7, .checksum = 70, .bytes = 5000},
        {.identity = 8, .checksum = 80, .bytes = 0},
        {.identity = 9, .checksum = 90, .bytes = 16, .digests = {1, 2, 3}}};
    struct pack_table table = {.key = 42, .n_entries = N, .entries = entries};
    memset(file, 0, sizeof file);
    pack_table_place(&table);
    ck_assert_uint_eq(table.file_bytes, FILE_BYTES);
    pack_table_encode(&table, file);
}

/* The checksum of a head that was changed on purpose. */
static void sign(void)
{
    uint32_t n;
    memcpy(&n, file + 12, sizeof n);
    uint64_t sum =
        XXH3_64bits_withSeed(file + HEAD_BYTES, (size_t)n * ENTRY_BYTES, XXH3_64bits(file, 32));
    memcpy(file + 32, &sum, sizeof sum);
}

static void put(size_t at, uint64_t value, size_t n)
{
    memcpy(file + at, &value, n);
}

START_TEST(table_comes_back_as_it_was_written)
{
    struct error err;
    struct pack_table table;
    fill();
    CHECK_OK(pack_table_parse(&table, file, sizeof file, "f", &err));
    ck_assert_uint_eq(table.key, 42);
    ck_assert_int_eq(table.n_entries, N);
    ck_assert_uint_eq(table.entries[0].offset, PACK_ALIGN);
    ck_assert_uint_eq(table.entries[0].bytes, 5000);
    ck_assert_uint_eq(table.entries[2].offset, 3 * PACK_ALIGN);
    ck_assert_uint_eq(table.entries[2].identity, 9);
    ck_assert_uint_eq(table.entries[2].checksum, 90);
    for (uint64_t d = 0; d < PACK_DIGESTS; d++)
        ck_assert_uint_eq(table.entries[2].digests[d], d + 1);
    pack_table_free(&table);
    pack_table_free(&table);
}
END_TEST

START_TEST(table_refuses_every_length_but_its_own)
{
    struct error err;
    struct pack_table table;
    fill();
    for (size_t n = 0; n < sizeof file; n++) {
        ck_assert_int_eq(pack_table_parse(&table, file, n, "f", &err), ERR_FORMAT);
        ck_assert_ptr_null(table.entries);
    }
    CHECK_ERR(pack_table_parse(&table, file, 10, "f", &err), ERR_FORMAT, "f holds no packed");
    CHECK_ERR(pack_table_parse(&table, file, 9000, "f", &err), ERR_FORMAT, "f has 9000 bytes");
}
END_TEST

START_TEST(table_refuses_any_changed_bit_of_its_head)
{
    struct error err;
    struct pack_table table;
    fill();
    for (size_t bit = 0; bit < 8 * pack_table_head_bytes(N); bit++) {
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        ck_assert_int_eq(pack_table_parse(&table, file, sizeof file, "f", &err), ERR_FORMAT);
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}
END_TEST

/* {byte, value, width, words of the refusal}: wrong heads with the right checksum. */
static const struct {
    size_t at;
    uint64_t value;
    size_t n;
    const char *words;
} lies[] = {
    {8, 1, 4, "version 1"},
    {12, 1 << 21, 4, "2097152 matrices"},
    {16, 99, 8, "says that it has 99"},
    {HEAD_BYTES + 16, 0, 8, "matrix 0 lies at byte 0"},
    {HEAD_BYTES + 16, 4097, 8, "matrix 0 lies at byte 4097"},
    {HEAD_BYTES + 24, UINT64_MAX, 8, "matrix 0 lies at byte 4096"},
    {HEAD_BYTES + ENTRY_BYTES + 16, 2 * PACK_ALIGN, 8, "matrix 1 lies at byte 8192"},
    {HEAD_BYTES + 2 * ENTRY_BYTES + 16, 1 << 30, 8, "matrix 2 lies at byte 1073741824"},
    {HEAD_BYTES + 2 * ENTRY_BYTES + 24, PACK_ALIGN + 1, 8, "matrix 2"},
};

START_TEST(table_refuses_wrong_fields_with_a_right_checksum)
{
    struct error err;
    struct pack_table table;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        fill();
        put(lies[i].at, lies[i].value, lies[i].n);
        if (lies[i].at != 12) sign();
        CHECK_ERR(pack_table_parse(&table, file, sizeof file, "f", &err), ERR_FORMAT,
                  lies[i].words);
        ck_assert_ptr_null(table.entries);
    }
}
END_TEST

START_TEST(table_without_matrices_is_a_table)
{
    struct error err;
    struct pack_table table = {.key = 1};
    pack_table_place(&table);
    ck_assert_uint_eq(table.file_bytes, PACK_ALIGN);
    memset(file, 0, sizeof file);
    pack_table_encode(&table, file);
    CHECK_OK(pack_table_parse(&table, file, PACK_ALIGN, "f", &err));
    ck_assert_int_eq(table.n_entries, 0);
    pack_table_free(&table);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pack_table");
    TCase *cases = tcase_create("pack_table");
    tcase_add_test(cases, table_comes_back_as_it_was_written);
    tcase_add_test(cases, table_refuses_every_length_but_its_own);
    tcase_add_test(cases, table_refuses_any_changed_bit_of_its_head);
    tcase_add_test(cases, table_refuses_wrong_fields_with_a_right_checksum);
    tcase_add_test(cases, table_without_matrices_is_a_table);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
