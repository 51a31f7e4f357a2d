/* ctest: labels=quick libs=tokenizer timeout=120 */
/* The tokenizer's metadata of a GGUF file: the ids that follow from right ones, and the sentence
 * that wrong ones are refused with. */
#include "tests/support/check_util.h"

#include <stdio.h>

#include "base/system/file.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/gguf/pre_tokenizers.h"
#include "model/tokenizer/gguf/vocabulary.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/gguf_tokenizer_file.h"

static struct error err;

static int open_file(struct tokenizer **tok, struct file *f)
{
    struct gguf *gguf = finish(f);
    int rc = tokenizer_open_gguf(tok, gguf, &err);
    gguf_close(gguf);
    gguf_writer_free(&f->w);
    return rc;
}

static void refuse(struct file *f, int code, const char *part)
{
    struct tokenizer *tok;
    CHECK_ERR(open_file(&tok, f), code, part);
    ck_assert_ptr_null(tok);
    ck_assert_ptr_nonnull(strstr(err.text, "FILE"));
}

/* Encodes a text and writes its ids: "1,2,3". */
static const char *ids_of(const struct tokenizer *tok, const char *text, unsigned flags)
{
    static char shown[256];
    struct token_ids ids = {0};
    size_t at = 0;
    CHECK_OK(tokenizer_encode(tok, text, strlen(text), flags, &ids, &err));
    shown[0] = '\0';
    for (size_t i = 0; i < ids.n; i++) {
        at += (size_t)snprintf(shown + at, sizeof shown - at, "%s%d", i ? "," : "", ids.data[i]);
        ck_assert_uint_lt(at, sizeof shown);
    }
    token_ids_free(&ids);
    return shown;
}

/* The ids of `text` by the tokenizer of a file, which ends with this. */
static void check_ids(struct file *f, const char *text, unsigned flags, const char *wanted)
{
    struct tokenizer *tok;
    CHECK_OK(open_file(&tok, f));
    ck_assert_str_eq(ids_of(tok, text, flags), wanted);
    tokenizer_close(tok);
}

/* ---- byte-level BPE ---- */

START_TEST(every_name_of_a_pre_tokenizer_is_understood_and_documented)
{
    char *page, quoted[64];
    size_t len;
    CHECK_OK(file_read_text(&page, &len, SOURCE_DIR "/docs/tokenizers.md", 1 << 20, &err));
    int i = 0;
    for (const struct pre_tokenizer *pre; (pre = pre_tokenizer_at(i)); i++) {
        struct file f;
        begin_letters(&f, pre->name);
        check_ids(&f, "abc", 0, "4");
        snprintf(quoted, sizeof quoted, "`%s`", pre->name);
        ck_assert_msg(strstr(page, quoted) != NULL, "docs/tokenizers.md lacks %s", quoted);
    }
    ck_assert_int_gt(i, 40);
    free(page);
}
END_TEST

START_TEST(bos_is_added_where_the_file_or_the_name_says_so)
{
    struct file f;
    begin_letters(&f, "gpt-2");
    put_id(&f, "tokenizer.ggml.bos_token_id", 5);
    check_ids(&f, "a", TOKENIZER_ADD_SPECIAL, "0");
    begin_letters(&f, "llama-bpe");
    put_id(&f, "tokenizer.ggml.bos_token_id", 5);
    check_ids(&f, "a", TOKENIZER_ADD_SPECIAL, "5,0");
    begin_letters(&f, "llama-bpe");
    put_id(&f, "tokenizer.ggml.bos_token_id", 5);
    put_bool(&f, "tokenizer.ggml.add_bos_token", 0);
    check_ids(&f, "a", TOKENIZER_ADD_SPECIAL, "0");
    begin_letters(&f, "gpt-2");
    put_id(&f, "tokenizer.ggml.bos_token_id", 5);
    put_id(&f, "tokenizer.ggml.eos_token_id", 6);
    put_bool(&f, "tokenizer.ggml.add_bos_token", 1);
    put_bool(&f, "tokenizer.ggml.add_eos_token", 1);
    check_ids(&f, "a", TOKENIZER_ADD_SPECIAL, "5,0,6");
    begin_letters(&f, "llama-bpe"); /* which token would be BOS is not known */
    check_ids(&f, "a", TOKENIZER_ADD_SPECIAL, "0");
}
END_TEST

START_TEST(token_that_ends_a_text_is_special_whatever_its_type)
{
    struct file f;
    begin_letters(&f, "gpt-2");
    check_ids(&f, "a<|im_end|>b", TOKENIZER_PARSE_SPECIAL, "0,7,1");
}
END_TEST

START_TEST(file_without_a_name_is_read_in_the_general_way_with_a_remark)
{
    struct tokenizer *tok;
    struct file f;
    begin_letters(&f, NULL);
    CHECK_OK(open_file(&tok, &f));
    ck_assert_ptr_nonnull(strstr(tokenizer_remark(tok), "tokenizer.ggml.pre"));
    ck_assert_str_eq(ids_of(tok, " abc", 0), "8,4");
    tokenizer_close(tok);
}
END_TEST

START_TEST(user_defined_blanks_are_found_before_words_are_cut)
{
    static const char *const tokens[] = {"a", "\xc4\xa0", "  ", "   "};
    static const int types[] = {1, 1, 4, 4};
    struct file f;
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    put_types(&f, types, COUNT(types));
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    check_ids(&f, "a     a a", 0, "0,3,2,0,1,0");
}
END_TEST

START_TEST(bytes_that_are_not_utf8_take_byte_tokens)
{
    char path[] = SOURCE_DIR "/tests/golden/gguf_tokenizers/bpe.gguf";
    static const char *const texts[] = {"\xff", "a\xc3", "\xe2\x98 x", "\xed\xa0\x80\xf5 b\x80"};
    struct tokenizer *tok;
    CHECK_OK(tokenizer_open(&tok, path, &err));
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct token_ids ids = {0};
        char bytes[64];
        size_t at = 0, len;
        CHECK_OK(tokenizer_encode(tok, texts[i], strlen(texts[i]), 0, &ids, &err));
        for (size_t j = 0; j < ids.n; j++) {
            const char *piece = tokenizer_piece(tok, ids.data[j], &len);
            memcpy(bytes + at, piece, len);
            at += len;
        }
        ck_assert_uint_eq(at, strlen(texts[i]));
        ck_assert_mem_eq(bytes, texts[i], at);
        token_ids_free(&ids);
    }
    tokenizer_close(tok);
}
END_TEST

/* ---- SentencePiece ---- */

START_TEST(merges_follow_from_scores)
{
    struct file f;
    begin_pieces(&f, NULL);
    put_bool(&f, "tokenizer.ggml.add_space_prefix", 0);
    check_ids(&f, "abab", 0, "8,5"); /* ba is made first, and aba of a and ba */
    static const float other[] = {0, 0, 0, -9, -7, -8, -1, -2, -3, -4, 0};
    begin_pieces(&f, other);
    put_bool(&f, "tokenizer.ggml.add_space_prefix", 0);
    check_ids(&f, "abab", 0, "6,6");
}
END_TEST

START_TEST(merge_with_the_longer_left_part_is_first_of_those_with_one_score)
{
    static const char *const tokens[] = {"<unk>", "x", "y", "z", "w", "xy", "zw", "xyz"};
    static const int types[] = {2, 1, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, -5, -5, -5, -5, -1, -2, -2};
    struct file f;
    begin(&f, "llama", NULL);
    put_texts(&f, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    put_types(&f, types, COUNT(types));
    put_scores(&f, scores, COUNT(scores));
    put_bool(&f, "tokenizer.ggml.add_space_prefix", 0);
    check_ids(&f, "xyzw", 0, "7,4"); /* xy and z before z and w, whose token has the lower id */
}
END_TEST

START_TEST(blank_before_a_text_and_bos_are_the_default)
{
    struct file f;
    begin_pieces(&f, NULL);
    check_ids(&f, "ab", TOKENIZER_ADD_SPECIAL, "1,9");
    begin_pieces(&f, NULL);
    put_bool(&f, "tokenizer.ggml.add_space_prefix", 0);
    check_ids(&f, "ab", TOKENIZER_ADD_SPECIAL, "1,6");
    begin_pieces(&f, NULL); /* after a special token, too */
    check_ids(&f, "</s>ab<tool>ab", TOKENIZER_PARSE_SPECIAL, "2,9,10,9");
    begin_pieces(&f, NULL);
    put_bool(&f, "tokenizer.ggml.add_bos_token", 0);
    put_bool(&f, "tokenizer.ggml.add_eos_token", 1);
    check_ids(&f, "ab", TOKENIZER_ADD_SPECIAL, "9,2");
}
END_TEST

START_TEST(extra_blanks_are_removed_where_the_file_says_so)
{
    struct file f;
    begin_pieces(&f, NULL);
    check_ids(&f, "a  ab ", 0, "3,4,3,9,3");
    begin_pieces(&f, NULL);
    put_bool(&f, "tokenizer.ggml.remove_extra_whitespaces", 1);
    check_ids(&f, "  a  ab ", 0, "3,4,9");
}
END_TEST

START_TEST(text_of_a_control_token_is_no_word)
{
    static const char *const tokens[] = {"<unk>", "a", "b", "ab", "aab"};
    static const int types[] = {2, 1, 1, 3, 1};
    static const float scores[] = {0, -5, -5, -1, -1};
    struct file f;
    begin(&f, "llama", NULL);
    put_texts(&f, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    put_types(&f, types, COUNT(types));
    put_scores(&f, scores, COUNT(scores));
    put_bool(&f, "tokenizer.ggml.add_space_prefix", 0);
    check_ids(&f, "aab", 0, "1,1,2");
}
END_TEST

/* ---- wrong files ---- */

START_TEST(tokenizers_that_are_not_understood_are_named)
{
    static const char *const models[] = {"bert", "t5", "rwkv", "plamo2", "gemma4"};
    struct file f;
    for (size_t i = 0; i < COUNT(models); i++) {
        begin(&f, models[i], NULL);
        refuse(&f, ERR_UNSUPPORTED, models[i]);
        ck_assert_ptr_nonnull(strstr(err.text, "; take a folder with the model's tokenizer.json"));
    }
    begin_letters(&f, "kimi-k2");
    refuse(&f, ERR_UNSUPPORTED, "tokenizer.ggml.pre \"kimi-k2\" is none of default, llama-bpe");
    ck_assert_ptr_nonnull(strstr(err.text, "the others that docs/tokenizers.md lists; take a "
                                           "folder with the model's tokenizer.json"));
    f = (struct file){0};
    gguf_put_header(&f.w, 3, 0, 0);
    refuse(&f, ERR_FORMAT, "the key tokenizer.ggml.model is missing");
}
END_TEST

START_TEST(lists_of_the_wrong_type_or_length_are_refused)
{
    struct file f;
    begin(&f, "gpt2", "gpt-2");
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.tokens has 0 entries");
    begin(&f, "gpt2", "gpt-2");
    put_text(&f, "tokenizer.ggml.tokens", "a");
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.tokens");
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", letters, COUNT(letters));
    put_types(&f, letter_types, COUNT(letters) - 1);
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.token_type has 8 entries, but there are 9 tokens");
    static const int odd[] = {1, 1, 1, 1, 1, 1, 1, 1, 7};
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", letters, COUNT(letters));
    put_types(&f, odd, COUNT(letters));
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.token_type of token 8 is 7");
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", letters, COUNT(letters));
    refuse(&f, ERR_FORMAT, "has no tokenizer.ggml.merges");
    begin(&f, "llama", NULL);
    put_texts(&f, "tokenizer.ggml.tokens", pieces, COUNT(pieces));
    refuse(&f, ERR_FORMAT, "no tokenizer.ggml.scores");
    begin(&f, "llama", NULL);
    put_texts(&f, "tokenizer.ggml.tokens", pieces, COUNT(pieces));
    put_scores(&f, (const float[]){0, 1}, 2);
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.scores has 2 entries");
    float scores[COUNT(pieces)] = {0};
    scores[3] = strtof("nan", NULL);
    begin_pieces(&f, scores);
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.scores of token 3 is not a number");
}
END_TEST

START_TEST(tokens_and_merges_that_make_no_sense_are_refused)
{
    static const char *const bad[] = {"a", "\xff"};
    static const char *const twice[] = {"a", "a"};
    static const char *const merges[][1] = {{"a z"}, {"a c"}, {"ab"}, {"a b c"}, {" a"}};
    static const char *const parts[] = {"merge 0 names \"z\"", "merge 0 names \"ac\"",
                                        "merge 0 is not a pair", "merge 0 is not a pair",
                                        "merge 0 is not a pair"};
    struct file f;
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", bad, COUNT(bad));
    refuse(&f, ERR_FORMAT, "token 1 of tokenizer.ggml.tokens is not UTF-8");
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", twice, COUNT(twice));
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    refuse(&f, ERR_FORMAT, "token \"a\" has two ids, 0 and 1");
    for (size_t i = 0; i < COUNT(merges); i++) {
        begin(&f, "gpt2", "gpt-2");
        put_texts(&f, "tokenizer.ggml.tokens", letters, COUNT(letters));
        put_texts(&f, "tokenizer.ggml.merges", merges[i], 1);
        refuse(&f, ERR_FORMAT, parts[i]);
    }
}
END_TEST

START_TEST(tokens_that_are_too_long_or_too_special_are_refused)
{
    enum { LENGTH = 4097, TOKENS = (1 << 18) + 1 };
    char *text = calloc(LENGTH + 1, 1);
    struct file f;
    memset(text, 'a', LENGTH);
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", (const char *const[]){text}, 1);
    refuse(&f, ERR_UNSUPPORTED, "token 0 of tokenizer.ggml.tokens has 4097 bytes, more than 4096");
    begin(&f, "gpt2", "gpt-2");
    gguf_put_array(&f.w, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        snprintf(text, LENGTH, "%d", i);
        gguf_put_text(&f.w, text);
    }
    gguf_put_array(&f.w, "tokenizer.ggml.token_type", GGUF_INT32, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        gguf_put_u32(&f.w, GGUF_TOKEN_USER_DEFINED);
    f.n_keys += 2;
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    refuse(&f, ERR_UNSUPPORTED, "more than 262144 tokens");
    static const char *const nul[] = {"a"};
    static const int control[] = {3};
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", nul, 1);
    f.w.data[f.w.len - 1] = '\0';
    put_types(&f, control, 1);
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    refuse(&f, ERR_UNSUPPORTED, "the special token 0 holds a NUL");
    free(text);
}
END_TEST

START_TEST(ids_out_of_range_are_refused)
{
    struct file f;
    begin_letters(&f, "gpt-2");
    put_id(&f, "tokenizer.ggml.bos_token_id", 9);
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.bos_token_id");
    begin_letters(&f, "gpt-2");
    put_id(&f, "tokenizer.ggml.eos_token_id", 4294967295u);
    refuse(&f, ERR_FORMAT, "tokenizer.ggml.eos_token_id");
    begin_letters(&f, "gpt-2"); /* files have such ids, and nothing is lost without them */
    put_id(&f, "tokenizer.ggml.padding_token_id", 4294967295u);
    put_id(&f, "tokenizer.ggml.unknown_token_id", 9);
    check_ids(&f, "a", 0, "0");
}
END_TEST

START_TEST(token_without_a_text_has_no_text)
{
    static const char *const tokens[] = {"a", "", "[PAD2]", "b"};
    static const int types[] = {1, 1, 5, 1};
    struct tokenizer *tok;
    struct file f;
    size_t len;
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    put_types(&f, types, COUNT(types));
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    CHECK_OK(open_file(&tok, &f));
    ck_assert_int_eq(tokenizer_vocab_size(tok), 4);
    for (int id = 1; id <= 2; id++) { /* the second one fills a row of the embedding */
        tokenizer_piece(tok, id, &len);
        ck_assert_uint_eq(len, 0);
    }
    ck_assert_str_eq(ids_of(tok, "ab", 0), "0,3");
    tokenizer_close(tok);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_metadata");
    TCase *tcase = tcase_create("metadata");
    tcase_add_test(tcase, every_name_of_a_pre_tokenizer_is_understood_and_documented);
    tcase_add_test(tcase, bos_is_added_where_the_file_or_the_name_says_so);
    tcase_add_test(tcase, token_that_ends_a_text_is_special_whatever_its_type);
    tcase_add_test(tcase, file_without_a_name_is_read_in_the_general_way_with_a_remark);
    tcase_add_test(tcase, user_defined_blanks_are_found_before_words_are_cut);
    tcase_add_test(tcase, bytes_that_are_not_utf8_take_byte_tokens);
    tcase_add_test(tcase, merges_follow_from_scores);
    tcase_add_test(tcase, merge_with_the_longer_left_part_is_first_of_those_with_one_score);
    tcase_add_test(tcase, blank_before_a_text_and_bos_are_the_default);
    tcase_add_test(tcase, extra_blanks_are_removed_where_the_file_says_so);
    tcase_add_test(tcase, text_of_a_control_token_is_no_word);
    tcase_add_test(tcase, tokenizers_that_are_not_understood_are_named);
    tcase_add_test(tcase, lists_of_the_wrong_type_or_length_are_refused);
    tcase_add_test(tcase, tokens_and_merges_that_make_no_sense_are_refused);
    tcase_add_test(tcase, tokens_that_are_too_long_or_too_special_are_refused);
    tcase_add_test(tcase, ids_out_of_range_are_refused);
    tcase_add_test(tcase, token_without_a_text_has_no_text);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
