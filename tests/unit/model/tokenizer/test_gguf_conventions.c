/* ctest: labels=quick libs=tokenizer timeout=120 */
/* The conventions in the metadata of a GGUF file: the tokens that end a text, and how a
 * conversation is written. */
#include "tests/support/check_util.h"

#include <stdio.h>
#include <unistd.h>

#include "model/tokenizer/chat_template.h"
#include "model/tokenizer/gguf/chat.h"
#include "model/tokenizer/gguf/ends.h"
#include "tests/support/gguf_tokenizer_file.h"

static struct error err;

/* ---- ends ---- */

static void check_ends(struct file *f, const char *wanted)
{
    struct end_ids ends = {0};
    char shown[128] = "";
    size_t at = 0;
    struct gguf *gguf = finish(f);
    CHECK_OK(gguf_ends_read(&ends, gguf, &err));
    for (int i = 0; i < ends.n; i++)
        at += (size_t)snprintf(shown + at, sizeof shown - at, "%s%d", i ? "," : "", ends.ids[i]);
    ck_assert_str_eq(shown, wanted);
    gguf_close(gguf);
    gguf_writer_free(&f->w);
}

START_TEST(ends_are_those_of_the_keys_and_the_known_texts)
{
    static const char *const parts[] = {"a", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>"};
    struct file f;
    begin_letters(&f, "gpt-2");
    put_id(&f, "tokenizer.ggml.eos_token_id", 1);
    put_id(&f, "tokenizer.ggml.eot_token_id", 2);
    put_id(&f, "tokenizer.ggml.eom_token_id", 3);
    check_ends(&f, "1,2,3,6,7"); /* </s> is a control token */
    begin_pieces(&f, NULL);
    check_ends(&f, "2");
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", parts, COUNT(parts));
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    check_ends(&f, "2,3,4"); /* <|end|> ends only a part of a text then */
    begin(&f, "gpt2", "gpt-2");
    put_texts(&f, "tokenizer.ggml.tokens", parts, 2);
    put_texts(&f, "tokenizer.ggml.merges", NULL, 0);
    check_ends(&f, "1");
    f = (struct file){0};
    gguf_put_header(&f.w, 3, 0, 0);
    check_ends(&f, "");
}
END_TEST

START_TEST(tag_that_is_no_control_token_ends_nothing)
{
    static const char *const tokens[] = {"<pad>", "<eos>", "<bos>", "</s>"};
    static const int types[] = {3, 3, 3, 4};
    struct file f;
    begin(&f, "llama", NULL);
    put_texts(&f, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    put_types(&f, types, COUNT(types));
    put_scores(&f, (const float[]){0, 0, 0, 0}, 4);
    put_id(&f, "tokenizer.ggml.eos_token_id", 1);
    check_ends(&f, "1");
}
END_TEST

/* ---- chat templates ---- */

static void write_letters(const char *path, const char *key, const char *template)
{
    struct file f;
    begin_letters(&f, "gpt-2");
    put_id(&f, "tokenizer.ggml.bos_token_id", 5);
    put_id(&f, "tokenizer.ggml.eos_token_id", 7);
    put_id(&f, "tokenizer.ggml.padding_token_id", 99);
    if (key) put_text(&f, key, template);
    f.w.data[16] = (uint8_t)f.n_keys;
    gguf_write_file(&f.w, path);
    gguf_writer_free(&f.w);
}

static void check_rendered(const char *model, const char *file, const char *wanted)
{
    struct chat_template *chat;
    struct buffer text = {0};
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "hi");
    CHECK_OK(chat_template_open(&chat, model, file, &err));
    ck_assert_ptr_nonnull(chat);
    ck_assert_str_eq(chat_template_origin(chat), file ? file : model);
    CHECK_OK(chat_template_render(chat, messages, true, NULL, 0, &text, &err));
    ck_assert_uint_eq(text.len, strlen(wanted));
    ck_assert_mem_eq(text.data, wanted, text.len);
    buffer_free(&text);
    json_decref(messages);
    chat_template_close(chat);
}

START_TEST(chat_template_is_that_of_the_file)
{
    static const char template[] = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
                                   "{{ pad_token }}";
    char path[] = "gguf-template-XXXXXX", other[] = "gguf-other-XXXXXX";
    struct chat_template *chat;
    close(mkstemp(path));
    close(mkstemp(other));
    write_letters(path, "tokenizer.chat_template", template);
    check_rendered(path, NULL, "<s>hi<|im_end|>");
    write_letters(path, "tokenizer.chat_template.default", template);
    check_rendered(path, NULL, "<s>hi<|im_end|>");
    write_letters(other, NULL, NULL);
    check_rendered(other, path, "<s>hi<|im_end|>"); /* --chat-template */
    CHECK_OK(chat_template_open(&chat, other, NULL, &err));
    ck_assert_ptr_null(chat);
    CHECK_ERR(chat_template_open(&chat, NULL, other, &err), ERR_NOT_FOUND, "has no chat template");
    write_letters(path, "tokenizer.chat_template.tool_use", template);
    CHECK_ERR(chat_template_open(&chat, path, NULL, &err), ERR_FORMAT,
              "tokenizer.chat_template.tool_use, but none called \"default\"");
    unlink(path);
    unlink(other);
}
END_TEST

/* The texts of special tokens, as JSON with sorted keys. */
static void check_special(struct file *f, const char *wanted)
{
    json_t *special;
    struct gguf *gguf = finish(f);
    CHECK_OK(gguf_special_texts(&special, gguf, &err));
    char *shown = json_dumps(special, JSON_SORT_KEYS | JSON_COMPACT);
    ck_assert_str_eq(shown, wanted);
    free(shown);
    json_decref(special);
    gguf_close(gguf);
    gguf_writer_free(&f->w);
}

START_TEST(sentencepiece_file_that_names_no_ids_has_the_usual_special_tokens)
{
    static const char *const two[] = {"<unk>", "<s>"};
    struct file f;
    begin_pieces(&f, NULL);
    check_special(&f, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\"}");
    begin_pieces(&f, NULL);
    put_id(&f, "tokenizer.ggml.unknown_token_id", 99); /* no token, and no error */
    put_id(&f, "tokenizer.ggml.bos_token_id", 2);
    check_special(&f, "{\"bos_token\":\"</s>\",\"eos_token\":\"</s>\"}");
    begin(&f, "llama", NULL); /* too few tokens for the end's */
    put_texts(&f, "tokenizer.ggml.tokens", two, COUNT(two));
    check_special(&f, "{\"bos_token\":\"<s>\",\"unk_token\":\"<unk>\"}");
    begin_letters(&f, "gpt-2");
    check_special(&f, "{}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_conventions");
    TCase *tcase = tcase_create("conventions");
    tcase_add_test(tcase, ends_are_those_of_the_keys_and_the_known_texts);
    tcase_add_test(tcase, tag_that_is_no_control_token_ends_nothing);
    tcase_add_test(tcase, chat_template_is_that_of_the_file);
    tcase_add_test(tcase, sentencepiece_file_that_names_no_ids_has_the_usual_special_tokens);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
