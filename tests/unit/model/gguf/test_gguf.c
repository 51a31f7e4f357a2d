/* ctest: labels=quick libs=gguf timeout=60 */
/* GGUF files: what is read of right ones, and the sentence that a wrong one is refused with. */
#include "model/gguf/gguf.h"

#include <unistd.h>

#include "tests/support/gguf_writer.h"

static struct error err;

/* Opens what was written and frees it. The bytes are a block of their own, so that a sanitizer sees
 * a read past their end. */
static int open_written(struct gguf_writer *w, struct gguf **gguf, uint8_t **bytes)
{
    *bytes = malloc(w->len ? w->len : 1);
    ck_assert_ptr_nonnull(*bytes);
    if (w->len) memcpy(*bytes, w->data, w->len);
    int rc = gguf_open_bytes(gguf, *bytes, w->len, "FILE", &err);
    gguf_writer_free(w);
    return rc;
}

static void refuse(struct gguf_writer *w, int code, const char *part)
{
    struct gguf *gguf;
    uint8_t *bytes;
    CHECK_ERR(open_written(w, &gguf, &bytes), code, part);
    ck_assert_ptr_null(gguf);
    free(bytes);
}

/* ---- right files ---- */

static void write_all_kinds(struct gguf_writer *w)
{
    static const struct {
        uint32_t kind;
        uint64_t bits;
        size_t n_bytes;
    } values[] = {{GGUF_UINT8, 200, 1},
                  {GGUF_INT8, (uint64_t)-100, 1},
                  {GGUF_UINT16, 60000, 2},
                  {GGUF_INT16, (uint64_t)-30000, 2},
                  {GGUF_UINT32, 4000000000, 4},
                  {GGUF_INT32, (uint64_t)-2000000000, 4},
                  {GGUF_FLOAT32, 0x3fc00000, 4},
                  {GGUF_BOOL, 1, 1},
                  {GGUF_UINT64, UINT64_MAX, 8},
                  {GGUF_INT64, (uint64_t)-5, 8},
                  {GGUF_FLOAT64, 0x4004000000000000, 8}};
    char key[8];
    gguf_put_header(w, 3, 0, sizeof values / sizeof *values + 3);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(key, sizeof key, "k%u", values[i].kind);
        gguf_put_key(w, key, values[i].kind);
        gguf_put_number(w, values[i].bits, values[i].n_bytes);
    }
    gguf_put_text_key(w, "k8", "text");
    gguf_put_array(w, "k9", GGUF_STRING, 2);
    gguf_put_text(w, "one");
    gguf_put_text(w, "");
    gguf_put_array(w, "nested", GGUF_ARRAY, 2);
    for (int i = 0; i < 2; i++) {
        gguf_put_u32(w, GGUF_UINT8);
        gguf_put_u64(w, 3);
        gguf_put_zeros(w, 3);
    }
}

START_TEST(values_of_all_kinds_are_read)
{
    struct gguf_writer w = {0};
    struct gguf *gguf;
    uint8_t *bytes;
    int value = 0;
    double number = 0;
    bool truth = false;
    struct gguf_text text;
    write_all_kinds(&w);
    CHECK_OK(open_written(&w, &gguf, &bytes));
    static const struct {
        const char *key;
        int value;
    } ints[] = {{"k0", 200},    {"k1", -100},        {"k2", 60000},
                {"k3", -30000}, {"k5", -2000000000}, {"k11", -5}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        CHECK_OK(gguf_read_int(gguf, ints[i].key, INT32_MIN, INT32_MAX, &value, &err));
        ck_assert_int_eq(value, ints[i].value);
    }
    CHECK_OK(gguf_read_number(gguf, "k4", &number, &err));
    ck_assert_double_eq(number, 4e9);
    CHECK_OK(gguf_read_number(gguf, "k6", &number, &err));
    ck_assert_double_eq(number, 1.5);
    CHECK_OK(gguf_read_number(gguf, "k12", &number, &err));
    ck_assert_double_eq(number, 2.5);
    CHECK_OK(gguf_read_bool(gguf, "k7", &truth, &err));
    ck_assert(truth);
    CHECK_OK(gguf_read_text(gguf, "k8", &text, &err));
    ck_assert(gguf_text_is(&text, "text"));
    ck_assert(!gguf_text_is(&text, "tex") && !gguf_text_is(&text, "texts"));
    ck_assert(!gguf_text_is(&text, "next"));
    ck_assert(gguf_has(gguf, "nested") && gguf_is_array(gguf, "nested"));
    ck_assert(!gguf_has(gguf, "k99") && !gguf_is_array(gguf, "k8"));
    gguf_close(gguf);
    free(bytes);
}
END_TEST

START_TEST(a_value_of_another_kind_is_refused_with_its_value)
{
    struct gguf_writer w = {0};
    struct gguf *gguf;
    uint8_t *bytes;
    int value = 7;
    double number = 7;
    bool truth = false;
    struct gguf_text text;
    struct gguf_array array;
    write_all_kinds(&w);
    CHECK_OK(open_written(&w, &gguf, &bytes));
    CHECK_ERR(gguf_read_int(gguf, "k8", 0, 9, &value, &err), ERR_FORMAT,
              "FILE: \"k8\" is the text \"text\", must be an integer from 0 to 9");
    CHECK_ERR(gguf_read_int(gguf, "k0", 0, 9, &value, &err), ERR_FORMAT, "\"k0\" is 200");
    CHECK_ERR(gguf_read_int(gguf, "k10", 0, 9, &value, &err), ERR_FORMAT,
              "\"k10\" is 18446744073709551615");
    CHECK_ERR(gguf_read_int(gguf, "k6", 0, 9, &value, &err), ERR_FORMAT, "\"k6\" is 1.5");
    CHECK_ERR(gguf_read_number(gguf, "k7", &number, &err), ERR_FORMAT,
              "\"k7\" is true, must be a number");
    CHECK_ERR(gguf_read_bool(gguf, "k0", &truth, &err), ERR_FORMAT, "must be true or false");
    CHECK_ERR(gguf_read_text(gguf, "k9", &text, &err), ERR_FORMAT,
              "\"k9\" is an array of 2, must be a text");
    CHECK_ERR(gguf_read_ints(gguf, "k9", &array, &err), ERR_FORMAT,
              "whose elements are each a text");
    CHECK_ERR(gguf_read_texts(gguf, "nested", &array, &err), ERR_FORMAT,
              "whose elements are each an array");
    CHECK_ERR(gguf_read_texts(gguf, "k8", &array, &err), ERR_FORMAT, "must be an array of texts");
    CHECK_OK(gguf_read_int(gguf, "missing", 0, 9, &value, &err));
    CHECK_OK(gguf_read_number(gguf, "missing", &number, &err));
    ck_assert(value == 7 && number == 7);
    gguf_close(gguf);
    free(bytes);
}
END_TEST

START_TEST(arrays_are_read_element_by_element)
{
    struct gguf_writer w = {0};
    struct gguf *gguf;
    uint8_t *bytes;
    struct gguf_array array = {0};
    gguf_put_header(&w, 2, 0, 5);
    gguf_put_array(&w, "ints", GGUF_INT32, 2);
    gguf_put_u32(&w, (uint64_t)-3);
    gguf_put_u32(&w, 4);
    gguf_put_array(&w, "floats", GGUF_FLOAT32, 2);
    gguf_put_f32(&w, -0.5f);
    gguf_put_f32(&w, 8);
    gguf_put_array(&w, "bools", GGUF_BOOL, 2);
    gguf_put_number(&w, 0x0100, 2);
    gguf_put_array(&w, "texts", GGUF_STRING, 3);
    gguf_put_text(&w, "a");
    gguf_put_text(&w, "");
    gguf_put_text(&w, "long one");
    gguf_put_array(&w, "empty", GGUF_UINT8, 0);
    CHECK_OK(open_written(&w, &gguf, &bytes));
    CHECK_OK(gguf_read_ints(gguf, "ints", &array, &err));
    ck_assert(array.n == 2 && gguf_array_int(&array, 0) == -3 && gguf_array_int(&array, 1) == 4);
    CHECK_OK(gguf_read_numbers(gguf, "floats", &array, &err));
    ck_assert(gguf_array_number(&array, 0) == -0.5 && gguf_array_number(&array, 1) == 8);
    CHECK_OK(gguf_read_bools(gguf, "bools", &array, &err));
    ck_assert(!gguf_array_bool(&array, 0) && gguf_array_bool(&array, 1));
    CHECK_OK(gguf_read_texts(gguf, "texts", &array, &err));
    ck_assert_uint_eq(array.n, 3);
    const uint8_t *at = array.data;
    ck_assert_uint_eq(gguf_next_text(&at).len, 1);
    ck_assert_uint_eq(gguf_next_text(&at).len, 0);
    struct gguf_text last = gguf_next_text(&at);
    ck_assert(gguf_text_is(&last, "long one"));
    CHECK_OK(gguf_read_texts(gguf, "empty", &array, &err));
    ck_assert_uint_eq(array.n, 0);
    gguf_close(gguf);
    free(bytes);
}
END_TEST

static void write_two_tensors(struct gguf_writer *w, uint64_t second_offset)
{
    gguf_put_header(w, 3, 2, 1);
    gguf_put_int_key(w, "general.alignment", 64);
    gguf_put_tensor(w, "b.weight", 2, (const uint64_t[]){8, 3}, 1, 0);
    gguf_put_tensor(w, "a.weight", 1, (const uint64_t[]){4}, 0, second_offset);
    gguf_put_padding(w, 64);
    gguf_put_zeros(w, 64);
    gguf_put_f32(w, 1.5f);
    gguf_put_zeros(w, 12);
}

START_TEST(tensors_are_found_by_name_with_their_data)
{
    struct gguf_writer w = {0};
    struct gguf *gguf;
    uint8_t *bytes;
    size_t n;
    write_two_tensors(&w, 64);
    CHECK_OK(open_written(&w, &gguf, &bytes));
    const struct gguf_tensor *tensors = gguf_tensors(gguf, &n);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(tensors[0].name, "a.weight");
    const struct gguf_tensor *a = gguf_find_tensor(gguf, "a.weight");
    const struct gguf_tensor *b = gguf_find_tensor(gguf, "b.weight");
    ck_assert_ptr_eq(a, tensors);
    ck_assert(a->n_dims == 1 && a->dims[0] == 4 && a->bytes == 16);
    ck_assert(b->n_dims == 2 && b->dims[0] == 8 && b->dims[1] == 3 && b->bytes == 48);
    float first;
    memcpy(&first, a->data, sizeof first);
    ck_assert(first == 1.5f);
    ck_assert_ptr_null(gguf_find_tensor(gguf, "c.weight"));
    gguf_close(gguf);
    free(bytes);
}
END_TEST

/* ---- wrong files ---- */

START_TEST(what_is_no_gguf_file_of_a_version_that_is_read_is_refused)
{
    struct gguf_writer w = {0};
    refuse(&w, ERR_FORMAT, "does not begin with \"GGUF\"");
    gguf_put(&w, "GGU", 3);
    refuse(&w, ERR_FORMAT, "does not begin with \"GGUF\"");
    gguf_put_header(&w, 1, 0, 0);
    refuse(&w, ERR_UNSUPPORTED, "version 1, which is not read (2 and 3 are)");
    gguf_put_header(&w, 4, 0, 0);
    refuse(&w, ERR_UNSUPPORTED, "version 4");
    gguf_put_header(&w, 0x03000000, 0, 0);
    refuse(&w, ERR_UNSUPPORTED, "big-endian");
    gguf_put(&w, "GGUF\3\0\0\0\1", 9);
    refuse(&w, ERR_FORMAT, "cut short or damaged: the header at byte 8 has 8 bytes");
}
END_TEST

START_TEST(counts_that_the_file_cannot_have_are_refused_before_memory_is_taken)
{
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 0, UINT64_MAX);
    refuse(&w, ERR_FORMAT, "has 18446744073709551615 keys");
    gguf_put_header(&w, 3, 0, 2);
    gguf_put_zeros(&w, 27);
    refuse(&w, ERR_FORMAT, "has 2 keys");
    gguf_put_header(&w, 3, 1u << 30, 0);
    gguf_put_zeros(&w, 100);
    refuse(&w, ERR_FORMAT, "has 1073741824 tensors");
}
END_TEST

START_TEST(keys_and_values_that_make_no_sense_are_refused_by_name)
{
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_text_key(&w, "", "a value that is long enough");
    refuse(&w, ERR_FORMAT, "a key at byte 32 is no text");
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_text_key(&w, "a\nb", "a value that is long enough");
    refuse(&w, ERR_FORMAT, "is no text");
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_u64(&w, 1u << 20);
    gguf_put_zeros(&w, 32);
    refuse(&w, ERR_FORMAT, "a key at byte 24 has 1048576 bytes; the most is 65535");
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_key(&w, "kind", 13);
    gguf_put_zeros(&w, 32);
    refuse(&w, ERR_FORMAT, "the value of \"kind\" has the kind 13");
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_bool_key(&w, "truth", 2);
    gguf_put_zeros(&w, 32);
    refuse(&w, ERR_FORMAT, "the value of \"truth\" has the truth value 2");
    gguf_put_header(&w, 3, 0, 2);
    gguf_put_int_key(&w, "twice", 1);
    gguf_put_int_key(&w, "twice", 1);
    refuse(&w, ERR_FORMAT, "has the key \"twice\" twice");
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_int_key(&w, "general.alignment", 24);
    refuse(&w, ERR_FORMAT, "\"general.alignment\" is 24, which is no power of 2");
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_int_key(&w, "general.alignment", 0);
    refuse(&w, ERR_FORMAT, "\"general.alignment\" is 0, must be an integer from 8");
}
END_TEST

START_TEST(values_that_are_longer_than_the_file_are_refused)
{
    static const uint64_t lengths[] = {100, UINT64_MAX, UINT64_MAX / 8 + 1, UINT64_MAX / 4 + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct gguf_writer w = {0};
        gguf_put_header(&w, 3, 0, 1);
        gguf_put_key(&w, "text", GGUF_STRING);
        gguf_put_u64(&w, lengths[i]);
        refuse(&w, ERR_FORMAT, "cut short or damaged: text");
        gguf_put_header(&w, 3, 0, 1);
        gguf_put_array(&w, "numbers", GGUF_FLOAT64, lengths[i]);
        gguf_put_zeros(&w, 64);
        refuse(&w, ERR_FORMAT, "cut short or damaged: numbers");
        gguf_put_header(&w, 3, 0, 1);
        gguf_put_array(&w, "texts", GGUF_STRING, lengths[i]);
        gguf_put_zeros(&w, 64);
        refuse(&w, ERR_FORMAT, "cut short or damaged: texts");
    }
}
END_TEST

START_TEST(arrays_in_arrays_end_at_a_depth)
{
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 0, 1);
    gguf_put_array(&w, "deep", GGUF_ARRAY, 1);
    for (int i = 0; i < 100; i++) {
        gguf_put_u32(&w, GGUF_ARRAY);
        gguf_put_u64(&w, 1);
    }
    refuse(&w, ERR_FORMAT, "the value of \"deep\" has arrays in arrays");
}
END_TEST

/* Writes a file of one tensor with data of `bytes`. */
static void write_tensor(struct gguf_writer *w, const char *name, uint32_t n_dims,
                         const uint64_t *dims, uint32_t type, uint64_t offset, size_t bytes)
{
    gguf_put_header(w, 3, 1, 0);
    gguf_put_tensor(w, name, n_dims, dims, type, offset);
    gguf_put_padding(w, 32);
    gguf_put_zeros(w, bytes);
}

START_TEST(tensors_that_make_no_sense_are_refused_by_name)
{
    static const uint64_t dims[] = {32, 2, 1, 1, 1};
    static const uint64_t huge[] = {1ull << 32, 1ull << 32, 1ull << 32, 1};
    struct gguf_writer w = {0};
    write_tensor(&w, "x", 0, dims, 0, 0, 256);
    refuse(&w, ERR_FORMAT, "tensor x has 0 dimensions; 1 to 4 are allowed");
    write_tensor(&w, "x", 5, dims, 0, 0, 256);
    refuse(&w, ERR_FORMAT, "tensor x has 5 dimensions");
    write_tensor(&w, "x", 2, dims, 4, 0, 256);
    refuse(&w, ERR_UNSUPPORTED, "tensor x is of type 4, which is not read");
    write_tensor(&w, "x", 2, dims, 19, 0, 256);
    refuse(&w, ERR_UNSUPPORTED,
           "tensor x is of type 19, IQ1_S, which is not read (F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
           "Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS are); take the model in one "
           "of these, or make it with llama-quantize");
    const struct {
        uint32_t type;
        const char *part;
    } others[] = {{16, "16, IQ2_XXS"}, {17, "17, IQ2_XS"}, {18, "18, IQ3_XXS"}, {21, "21, IQ3_S"},
                  {22, "22, IQ2_S"},   {29, "29, IQ1_M"},  {34, "34, TQ1_0"},   {35, "35, TQ2_0"},
                  {39, "39, MXFP4"},   {40, "40, NVFP4"},  {41, "41, Q1_0"},    {42, "42, Q2_0"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_tensor(&w, "x", 2, dims, others[i].type, 0, 256);
        refuse(&w, ERR_UNSUPPORTED, others[i].part);
    }
    write_tensor(&w, "x", 2, dims, 4000000000, 0, 256);
    refuse(&w, ERR_UNSUPPORTED, "tensor x is of type 4000000000");
    write_tensor(&w, "x", 2, dims, 12, 0, 256);
    refuse(&w, ERR_FORMAT, "rows of 32 elements, which are no whole blocks of 256 of Q4_K");
    write_tensor(&w, "x", 2, dims, 0, 0, 255);
    refuse(&w, ERR_FORMAT, "tensor x has 256 bytes at offset 0, the file ends after");
    write_tensor(&w, "x", 2, dims, 0, 32, 256);
    refuse(&w, ERR_FORMAT, "tensor x has 256 bytes at offset 32");
    write_tensor(&w, "x", 2, dims, 0, UINT64_MAX - 31, 256);
    refuse(&w, ERR_FORMAT, "tensor x has 256 bytes at offset 18446744073709551584");
    write_tensor(&w, "x", 2, dims, 0, 8, 300);
    refuse(&w, ERR_FORMAT, "offset 8, which is no multiple of the alignment 32");
    write_tensor(&w, "x", 4, huge, 0, 0, 256);
    refuse(&w, ERR_FORMAT, "is larger than the file");
    write_tensor(&w, "", 2, dims, 0, 0, 256);
    refuse(&w, ERR_FORMAT, "the name of a tensor at byte 32 is no text");
}
END_TEST

START_TEST(tensors_that_overlap_or_have_one_name_are_refused)
{
    static const uint64_t dims[] = {32};
    struct gguf_writer w = {0};
    write_two_tensors(&w, 0);
    refuse(&w, ERR_FORMAT, "tensors a.weight and b.weight overlap");
    gguf_put_header(&w, 3, 2, 0);
    gguf_put_tensor(&w, "x", 1, dims, 0, 0);
    gguf_put_tensor(&w, "x", 1, dims, 0, 128);
    gguf_put_padding(&w, 32);
    gguf_put_zeros(&w, 256);
    refuse(&w, ERR_FORMAT, "has the tensor x twice");
}
END_TEST

START_TEST(a_file_that_ends_anywhere_is_refused)
{
    struct gguf_writer whole = {0};
    write_two_tensors(&whole, 64);
    for (size_t len = 0; len < whole.len; len++) {
        struct gguf_writer w = {0};
        gguf_put(&w, whole.data, len);
        refuse(&w, ERR_FORMAT, "FILE");
    }
    gguf_writer_free(&whole);
}
END_TEST

/* ---- files of a split model ---- */

enum { PATH_BYTES = 300 };
static char folder[] = "/tmp/test_gguf.XXXXXX";

static void split_path(char path[PATH_BYTES], int no, int count)
{
    snprintf(path, PATH_BYTES, "%s/m-%05d-of-%05d.gguf", folder, no, count);
}

static void write_part(int no, int count, int own_no, int own_count, int n_tensors,
                       const char *tensor)
{
    struct gguf_writer w = {0};
    char path[PATH_BYTES];
    gguf_put_header(&w, 3, 1, no == 1 ? 4 : 3);
    gguf_put_key(&w, "split.no", GGUF_UINT16);
    gguf_put_number(&w, (uint64_t)own_no, 2);
    gguf_put_key(&w, "split.count", GGUF_UINT16);
    gguf_put_number(&w, (uint64_t)own_count, 2);
    gguf_put_int_key(&w, "split.tensors.count", (uint32_t)n_tensors);
    if (no == 1) gguf_put_text_key(&w, "general.architecture", "llama");
    gguf_put_tensor(&w, tensor, 1, (const uint64_t[]){4}, 0, 0);
    gguf_put_padding(&w, 32);
    gguf_put_zeros(&w, 16);
    split_path(path, no, count);
    gguf_write_file(&w, path);
    gguf_writer_free(&w);
}

static int open_part(struct gguf **gguf, int no, int count)
{
    char path[PATH_BYTES];
    split_path(path, no, count);
    return gguf_open(gguf, path, &err);
}

START_TEST(any_file_of_a_split_model_opens_all_of_them)
{
    struct gguf *gguf;
    const char *name;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int no = 1; no <= 3; no++) {
        write_part(no, 3, no - 1, 3, 3, no == 1 ? "x" : no == 2 ? "z" : "y");
    }
    for (int no = 1; no <= 3; no++) {
        CHECK_OK(open_part(&gguf, no, 3));
        ck_assert_uint_eq(gguf_n_files(gguf), 3);
        ck_assert(gguf_has(gguf, "general.architecture"));
        ck_assert_ptr_nonnull(gguf_find_tensor(gguf, "y"));
        ck_assert_ptr_nonnull(gguf_find_tensor(gguf, "z"));
        gguf_file(gguf, 2, &name);
        ck_assert_str_eq(name, "m-00003-of-00003.gguf");
        gguf_close(gguf);
    }
}
END_TEST

START_TEST(a_file_that_is_open_is_shared_until_it_changes)
{
    struct gguf *first, *second, *third;
    char path[PATH_BYTES];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_part(1, 2, 0, 2, 2, "x");
    write_part(2, 2, 1, 2, 2, "y");
    CHECK_OK(open_part(&first, 1, 2));
    CHECK_OK(open_part(&second, 1, 2));
    ck_assert_ptr_eq(first, second);
    CHECK_OK(open_part(&third, 2, 2)); /* another name in errors */
    ck_assert_ptr_ne(first, third);
    gguf_close(third);
    gguf_close(first);
    ck_assert_ptr_nonnull(gguf_find_tensor(second, "y"));
    /* Another file, of the same size. */
    split_path(path, 2, 2);
    ck_assert_int_eq(unlink(path), 0);
    write_part(2, 2, 1, 2, 2, "z");
    CHECK_OK(open_part(&third, 1, 2));
    ck_assert_ptr_ne(second, third);
    ck_assert_ptr_nonnull(gguf_find_tensor(third, "z"));
    ck_assert_ptr_null(gguf_find_tensor(third, "y"));
    ck_assert_ptr_nonnull(gguf_find_tensor(second, "y"));
    gguf_close(second);
    gguf_close(third);
}
END_TEST

START_TEST(more_files_than_can_be_shared_are_opened_too)
{
    enum { N = 40 };
    struct gguf *files[2 * N];
    char path[PATH_BYTES];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < 2 * N; i++) {
        struct gguf_writer w = {0};
        snprintf(path, sizeof path, "%s/%d", folder, i / 2);
        gguf_put_header(&w, 3, 0, 0);
        if (i % 2 == 0) gguf_write_file(&w, path);
        gguf_writer_free(&w);
        CHECK_OK(gguf_open(&files[i], path, &err));
    }
    ck_assert_ptr_eq(files[0], files[1]);
    ck_assert_ptr_ne(files[2 * N - 2], files[2 * N - 1]);
    for (int i = 0; i < 2 * N; i++) {
        ck_assert_str_eq(gguf_origin(files[i]), gguf_origin(files[i ^ 1]));
        if (i % 2) gguf_close(files[i - 1]);
        if (i % 2) gguf_close(files[i]);
    }
}
END_TEST

START_TEST(files_of_a_split_model_must_agree)
{
    struct gguf *gguf;
    char path[PATH_BYTES], other[PATH_BYTES];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_part(1, 2, 0, 2, 2, "x");
    CHECK_ERR(open_part(&gguf, 1, 2), ERR_NOT_FOUND,
              "m-00002-of-00002.gguf is missing, one of the 2 files");
    write_part(2, 2, 1, 2, 2, "x");
    CHECK_ERR(open_part(&gguf, 1, 2), ERR_FORMAT, "has the tensor x twice");
    write_part(2, 2, 1, 2, 5, "y");
    CHECK_ERR(open_part(&gguf, 2, 2), ERR_FORMAT,
              "\"split.tensors.count\" = 5, but the 2 files have 2 tensors");
    write_part(2, 2, 0, 2, 2, "y");
    CHECK_ERR(open_part(&gguf, 1, 2), ERR_FORMAT, "it is file 1 of 2, but its name says 2 of 2");
    split_path(path, 1, 2);
    snprintf(other, sizeof other, "%s/renamed.gguf", folder);
    ck_assert_int_eq(rename(path, other), 0);
    CHECK_ERR(gguf_open(&gguf, other, &err), ERR_FORMAT,
              "keep their names, which end in -00001-of-0000N.gguf");
}
END_TEST

START_TEST(the_first_bytes_tell_a_gguf_file)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    char path[PATH_BYTES];
    struct gguf_writer w = {0};
    snprintf(path, sizeof path, "%s/model", folder);
    ck_assert(!gguf_is_file(path) && !gguf_is_file(folder));
    gguf_put_header(&w, 3, 0, 0);
    gguf_write_file(&w, path);
    ck_assert(gguf_is_file(path));
    gguf_writer_free(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf");
    TCase *files = tcase_create("files");
    tcase_add_test(files, values_of_all_kinds_are_read);
    tcase_add_test(files, a_value_of_another_kind_is_refused_with_its_value);
    tcase_add_test(files, arrays_are_read_element_by_element);
    tcase_add_test(files, tensors_are_found_by_name_with_their_data);
    tcase_add_test(files, what_is_no_gguf_file_of_a_version_that_is_read_is_refused);
    tcase_add_test(files, counts_that_the_file_cannot_have_are_refused_before_memory_is_taken);
    tcase_add_test(files, keys_and_values_that_make_no_sense_are_refused_by_name);
    tcase_add_test(files, values_that_are_longer_than_the_file_are_refused);
    tcase_add_test(files, arrays_in_arrays_end_at_a_depth);
    tcase_add_test(files, tensors_that_make_no_sense_are_refused_by_name);
    tcase_add_test(files, tensors_that_overlap_or_have_one_name_are_refused);
    tcase_add_test(files, a_file_that_ends_anywhere_is_refused);
    tcase_add_test(files, any_file_of_a_split_model_opens_all_of_them);
    tcase_add_test(files, a_file_that_is_open_is_shared_until_it_changes);
    tcase_add_test(files, more_files_than_can_be_shared_are_opened_too);
    tcase_add_test(files, files_of_a_split_model_must_agree);
    tcase_add_test(files, the_first_bytes_tell_a_gguf_file);
    suite_add_tcase(suite, files);
    return check_main(suite);
}
