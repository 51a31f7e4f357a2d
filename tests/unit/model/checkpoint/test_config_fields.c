/* ctest: labels=quick libs=checkpoint timeout=60 */
/* The table of config fields: every field of the structs in config.h has a row, every row is seen
 * when configs are compared, and every row that the fingerprint counts changes it. */
#include "model/checkpoint/config/config_fields.h"

#include <ctype.h>
#include <stdio.h>

#include "base/system/file.h"
#include "tests/support/check_util.h"

#define HEADER SOURCE_DIR "/model/checkpoint/config/config.h"

static struct error err;

static const struct config_field *field_named(const char *name)
{
    int n;
    const struct config_field *fields = config_fields(&n);
    for (int i = 0; i < n; i++) {
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    }
    return NULL;
}

/* Blanks take the place of comments. */
static void drop_comments(char *text)
{
    for (char *begin = text; (begin = strstr(begin, "/*"));) {
        char *end = strstr(begin, "*/");
        ck_assert_ptr_nonnull(end);
        memset(begin, ' ', (size_t)(end + 2 - begin));
    }
}

/* The struct's member that one declarator names: "*a[3]" is a. */
static void check_member(const char *declarator, const char *prefix)
{
    char name[128];
    size_t len = strcspn(declarator, "[");
    while (len > 0 && isspace((unsigned char)declarator[len - 1]))
        len--;
    size_t begin = len;
    while (begin > 0 &&
           (isalnum((unsigned char)declarator[begin - 1]) || declarator[begin - 1] == '_'))
        begin--;
    ck_assert_uint_lt(begin, len);
    snprintf(name, sizeof name, "%s%.*s", prefix, (int)(len - begin), declarator + begin);
    bool is_nested = strcmp(name, "ropes") == 0;   /* its members have rows of their own */
    bool is_apart = strcmp(name, "sampling") == 0; /* nothing is computed from it */
    ck_assert_msg(is_nested || is_apart || field_named(name), "config_fields.c has no row for %s",
                  name);
}

/* Every member that the header declares in this struct; returns how many there are. */
static int check_members(const char *header, const char *struct_head, const char *prefix)
{
    char *save_line, *save_name, body[4096];
    int n = 0;
    const char *begin = strstr(header, struct_head);
    ck_assert_ptr_nonnull(begin);
    begin += strlen(struct_head);
    const char *end = strstr(begin, "};");
    ck_assert_ptr_nonnull(end);
    snprintf(body, sizeof body, "%.*s", (int)(end - begin), begin);
    for (char *line = strtok_r(body, ";", &save_line); line;
         line = strtok_r(NULL, ";", &save_line)) {
        if (line[strspn(line, " \n")] == '\0') continue;
        for (char *name = strtok_r(line, ",", &save_name); name;
             name = strtok_r(NULL, ",", &save_name)) {
            check_member(name, prefix);
            n++;
        }
    }
    return n;
}

START_TEST(every_field_of_the_header_has_a_row)
{
    char *header;
    size_t len;
    int n_rows;
    CHECK_OK(file_read_text(&header, &len, HEADER, 1 << 20, &err));
    drop_comments(header);
    int n = check_members(header, "struct model_config {", "");
    n += check_members(header, "struct rope_config {", "ropes[0].");
    config_fields(&n_rows);
    ck_assert_int_eq(n_rows, n - 2 + 1); /* not `ropes` and `sampling`, but one for ropes[1] */
    free(header);
}
END_TEST

START_TEST(rows_do_not_overlap)
{
    unsigned char covered[sizeof(struct model_config)] = {0};
    int n;
    const struct config_field *fields = config_fields(&n);
    for (int i = 0; i < n; i++) {
        ck_assert_uint_le(fields[i].offset + fields[i].size, sizeof covered);
        for (size_t k = 0; k < fields[i].size; k++) {
            ck_assert_msg(covered[fields[i].offset + k]++ == 0, "%s lies in another field",
                          fields[i].name);
        }
    }
}
END_TEST

static struct model_config some_config(void)
{
    struct model_config cfg = {.architecture = "LlamaForCausalLM", .ends = {2, {3, 5}}};
    return cfg;
}

/* Gives the field another value. */
static void change(struct model_config *cfg, const struct config_field *field)
{
    char *at = (char *)cfg + field->offset;
    double other = 2.5;
    float other_float = 2.5f;
    switch (field->type) {
    case CONFIG_TEXT:
        at[0] = 'X';
        break;
    case CONFIG_INT:
    case CONFIG_BOOL:
        at[0] ^= 1;
        break;
    case CONFIG_FLOAT:
        memcpy(at, &other_float, sizeof other_float);
        break;
    case CONFIG_FLOATS:
        memcpy(at + field->size - sizeof other_float, &other_float, sizeof other_float);
        break;
    case CONFIG_ROPE:
        cfg->ropes[1].theta = other;
        break;
    case CONFIG_DOUBLE:
        memcpy(at, &other, sizeof other);
        break;
    case CONFIG_IDS:
        cfg->ends.ids[1] = 6;
        break;
    case CONFIG_LAYERS:
        cfg->layers.kinds[0].window = 6;
        break;
    }
}

START_TEST(every_field_is_compared)
{
    const struct model_config cfg = some_config();
    int n;
    const struct config_field *fields = config_fields(&n);
    ck_assert_ptr_null(config_difference(&cfg, &cfg));
    for (int i = 0; i < n; i++) {
        struct model_config other = cfg;
        change(&other, &fields[i]);
        const char *found = config_difference(&cfg, &other);
        ck_assert_msg(found != NULL, "%s is not compared", fields[i].name);
        ck_assert_str_eq(found, fields[i].name);
    }
    struct model_config fewer = cfg;
    fewer.ends.n = 1;
    ck_assert_str_eq(config_difference(&cfg, &fewer), "ends");
    fewer.ends.n = 2;
    fewer.ends.ids[2] = 9; /* after the last id */
    ck_assert_ptr_null(config_difference(&cfg, &fewer));
}
END_TEST

/* How a model is stored is not hashed with its config: the tensors' own hashes say it. */
START_TEST(every_field_but_the_way_of_storing_is_hashed)
{
    const struct model_config cfg = some_config();
    char before[CONFIG_HASHED_BYTES], after[CONFIG_HASHED_BYTES];
    size_t n_before = config_hashed_bytes(&cfg, before);
    int n;
    const struct config_field *fields = config_fields(&n);
    for (int i = 0; i < n; i++) {
        struct model_config other = cfg;
        change(&other, &fields[i]);
        size_t n_after = config_hashed_bytes(&other, after);
        bool is_same = n_after == n_before && memcmp(before, after, n_before) == 0;
        bool is_storing = strncmp(fields[i].name, "stored", 6) == 0;
        ck_assert_msg(is_same == is_storing, "%s", fields[i].name);
        ck_assert_msg((fields[i].hashed_at == 0) == is_storing, "%s", fields[i].name);
    }
}
END_TEST

START_TEST(hashed_fields_are_numbered_without_gaps)
{
    int n, n_hashed = 0;
    const struct config_field *fields = config_fields(&n);
    for (int i = 0; i < n; i++) {
        n_hashed += fields[i].hashed_at > 0;
    }
    for (int place = 1; place <= n_hashed; place++) {
        int n_here = 0;
        for (int i = 0; i < n; i++) {
            n_here += fields[i].hashed_at == place;
        }
        ck_assert_msg(n_here == 1, "%d fields have place %d", n_here, place);
    }
}
END_TEST

/* The text of the fingerprint, as it has been from the first version on. */
START_TEST(the_hashed_text_is_what_it_always_was)
{
    static const char wanted[] = "LlamaForCausalLM 1 2 3 4 5 6 7 8 0x1p-1 1 0x1.2p+3 0x1.4p+3 "
                                 "0x1.6p+3 0x1.8p+3 13 0x1.cp+3 0x1.ep+3 0x1p+4 1 1 0 1 0 1 17 18";
    const struct model_config cfg = {
        .architecture = "LlamaForCausalLM",
        .n_layers = 1,
        .dim = 2,
        .n_heads = 3,
        .n_kv_heads = 4,
        .head_dim = 5,
        .ffn_dim = 6,
        .vocab_size = 7,
        .max_positions = 8,
        .norm_eps = 0.5f,
        .ropes = {{.kind = ROPE_LINEAR,
                   .theta = 9,
                   .factor = 10,
                   .low_freq_factor = 11,
                   .high_freq_factor = 12,
                   .original_max_positions = 13,
                   .beta_fast = 14,
                   .beta_slow = 15,
                   .attention_factor = 16,
                   .truncate = true}},
        .tied_embeddings = true,
        .o_bias = true,
        .qk_norm = true,
        .layers = {.kinds = {{.window = 17}}},
        .bos_id = 18,
        .ends = {2, {3, 5}},
    };
    char bytes[CONFIG_HASHED_BYTES];
    size_t n = config_hashed_bytes(&cfg, bytes), n_text = sizeof wanted - 1;
    ck_assert_uint_eq(n, n_text + 2 * sizeof(int32_t));
    ck_assert_mem_eq(bytes, wanted, n_text);
    ck_assert_mem_eq(bytes + n_text, cfg.ends.ids, 2 * sizeof(int32_t));
}
END_TEST

/* All windows and which layer has which are hashed where layers differ. */
START_TEST(layers_that_differ_are_hashed_one_by_one)
{
    static char before[CONFIG_HASHED_BYTES], after[CONFIG_HASHED_BYTES];
    struct model_config cfg = some_config();
    const struct layer_kind full = {0}, narrow = {.window = 8};
    cfg.n_layers = LAYERS_MAX;
    for (int i = 0; i < LAYERS_MAX; i++) {
        layer_table_set(&cfg.layers, i, i % 3 ? &narrow : &full);
    }
    struct model_config other = cfg;
    size_t n = config_hashed_bytes(&cfg, before);
    other.layers.of[LAYERS_MAX - 1] ^= 1;
    ck_assert_str_eq(config_difference(&cfg, &other), "layers");
    ck_assert_uint_eq(config_hashed_bytes(&other, after), n);
    ck_assert(memcmp(before, after, n) != 0);
    other = cfg;
    other.layers.kinds[1].window = 9;
    ck_assert_uint_eq(config_hashed_bytes(&other, after), n);
    ck_assert(memcmp(before, after, n) != 0);
    ck_assert_ptr_nonnull(strstr(before, " 0,8:0110110"));
    other = cfg;
    other.layers.kinds[1].rope = ROPE_NONE;
    ck_assert_uint_gt(config_hashed_bytes(&other, after), n);
    ck_assert_ptr_nonnull(strstr(after, " kind 1:-1,"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_fields");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, every_field_of_the_header_has_a_row);
    tcase_add_test(tcase, rows_do_not_overlap);
    tcase_add_test(tcase, every_field_is_compared);
    tcase_add_test(tcase, every_field_but_the_way_of_storing_is_hashed);
    tcase_add_test(tcase, hashed_fields_are_numbered_without_gaps);
    tcase_add_test(tcase, the_hashed_text_is_what_it_always_was);
    tcase_add_test(tcase, layers_that_differ_are_hashed_one_by_one);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
