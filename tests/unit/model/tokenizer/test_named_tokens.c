/* ctest: labels=quick libs=tokenizer timeout=60 */
/* Special tokens that other files than tokenizer.json name: the ids and texts of
 * tests/golden/tokenizers/named.golden.json, which tests/oracle/named_tokens_golden.py made with
 * transformers' AutoTokenizer, must come out equal. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/tokenizer/ids.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/check_util.h"

#define GOLDEN SOURCE_DIR "/tests/golden/tokenizers/"

enum { PATH_BYTES = 256, TEXT_BYTES = 4096 };

static const char *const members[] = {"tokenizer.json", "tokenizer_config.json",
                                      "special_tokens_map.json", "added_tokens.json"};

static char folder[PATH_BYTES];
static struct error err;

static const char *path_of(const char *name)
{
    static char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/named_tokens_XXXXXX");
    ck_assert(mkdtemp(folder) != NULL);
}

static void remove_members(void)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        unlink(path_of(members[i]));
}

static void teardown(void)
{
    remove_members();
    ck_assert_int_eq(rmdir(folder), 0);
}

static json_t *load_golden(const char *name)
{
    char path[512];
    json_error_t where;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    json_t *root = json_load_file(path, 0, &where);
    ck_assert_msg(root != NULL, "%s: line %d: %s", path, where.line, where.text);
    return root;
}

static void put(const char *name, const json_t *content)
{
    char *text = json_dumps(content, JSON_COMPACT);
    CHECK_OK(file_replace(path_of(name), text, strlen(text), &err));
    free(text);
}

static int try_folder(struct tokenizer **tok, const json_t *golden, const json_t *entry)
{
    const char *name;
    json_t *content;
    json_t *root = load_golden(json_string_value(json_object_get(golden, "base")));
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_object_update(vocab, json_object_get(golden, "vocab"));
    json_array_extend(json_object_get(root, "added_tokens"), json_object_get(entry, "added"));
    remove_members();
    put("tokenizer.json", root);
    json_object_foreach(json_object_get(entry, "files"), name, content)
    {
        put(name, content);
    }
    json_decref(root);
    return tokenizer_open(tok, folder, &err);
}

static struct tokenizer *open_folder(const json_t *golden, const json_t *entry)
{
    struct tokenizer *tok;
    CHECK_OK(try_folder(&tok, golden, entry));
    return tok;
}

static void show_ids(char out[TEXT_BYTES], const struct token_ids *ids)
{
    size_t n = 0;
    *out = '\0';
    for (size_t i = 0; i < ids->n && n < TEXT_BYTES - 32; i++)
        n += (size_t)snprintf(out + n, TEXT_BYTES - n, "%s%d", i ? "," : "", (int)ids->data[i]);
}

static void check_ids(const struct token_ids *ids, const json_t *wanted, const char *name,
                      const char *text)
{
    char is[TEXT_BYTES], should[TEXT_BYTES];
    struct token_ids golden = {0};
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(wanted, i));
        CHECK_OK(token_ids_append(&golden, &id, 1, &err));
    }
    show_ids(is, ids);
    show_ids(should, &golden);
    ck_assert_msg(strcmp(is, should) == 0, "%s: \"%s\" is %s, wanted %s", name, text, is, should);
    token_ids_free(&golden);
}

static void check_skipped(const struct tokenizer *tok, const struct token_ids *ids,
                          const char *wanted, const char *name)
{
    char out[TEXT_BYTES] = "";
    const char *text;
    size_t len;
    struct detokenizer *detok;
    CHECK_OK(detokenizer_open(&detok, tok, true, &err));
    for (size_t i = 0; i <= ids->n; i++) {
        if (i < ids->n)
            CHECK_OK(detokenizer_push(detok, ids->data[i], &text, &len, &err));
        else
            CHECK_OK(detokenizer_finish(detok, &text, &len, &err));
        strncat(out, text, len);
    }
    ck_assert_msg(strcmp(out, wanted) == 0, "%s: \"%s\", wanted \"%s\"", name, out, wanted);
    detokenizer_close(detok);
}

static void check_folder(const json_t *golden, const json_t *entry)
{
    const json_t *texts = json_object_get(golden, "texts");
    const char *name = json_string_value(json_object_get(entry, "name"));
    struct tokenizer *tok = open_folder(golden, entry);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        struct token_ids ids = {0};
        const char *text = json_string_value(json_array_get(texts, i));
        CHECK_OK(tokenizer_encode(tok, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &ids, &err));
        check_ids(&ids, json_array_get(json_object_get(entry, "ids"), i), name, text);
        check_skipped(tok, &ids,
                      json_string_value(json_array_get(json_object_get(entry, "skipped"), i)),
                      name);
        token_ids_free(&ids);
    }
    tokenizer_close(tok);
}

START_TEST(ids_are_those_of_transformers)
{
    json_t *golden = load_golden("named.golden");
    check_folder(golden, json_array_get(json_object_get(golden, "folders"), (size_t)_i));
    json_decref(golden);
}
END_TEST

/* Also where a name leads to it. */
START_TEST(added_token_that_is_no_object_is_refused)
{
    struct tokenizer *tok;
    json_t *golden = load_golden("named.golden");
    json_t *entry =
        json_pack("{s:[], s:{s:{s:{s:s}, s:s}}}", "added", "files", "tokenizer_config.json",
                  "added_tokens_decoder", "1000", "<|im_start|>", "bos_token", "<|im_start|>");
    CHECK_ERR(try_folder(&tok, golden, entry), ERR_FORMAT, "an added token has no content");
    json_decref(entry);
    json_decref(golden);
}
END_TEST

int main(void)
{
    json_t *golden = json_load_file(GOLDEN "named.golden.json", 0, NULL);
    int n_folders = (int)json_array_size(json_object_get(golden, "folders"));
    json_decref(golden);
    if (n_folders == 0) return 1; /* the file is missing */
    Suite *suite = suite_create("named_tokens");
    TCase *tcase = tcase_create("named_tokens");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, ids_are_those_of_transformers, 0, n_folders);
    tcase_add_test(tcase, added_token_that_is_no_object_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
