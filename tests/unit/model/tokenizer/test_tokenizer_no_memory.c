/* ctest: labels=quick libs=tokenizer fail_alloc=yes timeout=120 */
/* Opening and using a tokenizer while memory is short: each allocation fails once. */
#include <stdio.h>
#include <string.h>

#include "base/system/file.h"
#include "base/text/buffer.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/fail_alloc.h"

#define TALES  SOURCE_DIR "/deploy/models/tales/draft"
#define GOLDEN SOURCE_DIR "/tests/golden/tokenizers/"
#define GGUF   SOURCE_DIR "/tests/golden/gguf_tokenizers/"

/* Normalised, cut by patterns, with special tokens and bytes that are no token of their own. */
static const char sentence[] = "Once upon a time, 1234 \xc3\xa9te\xcc\x81s <s>"
                               "\xd0\x94\xe4\xb8\xad\xff<|a|>b!";

/* A small file with a component of each kind. */
static const char small[] =
    "{\"added_tokens\": [{\"id\": 6, \"content\": \"<|a|>\", \"special\": true},"
    "                   {\"id\": 7, \"content\": \"time\", \"normalized\": true}],"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"},"
    "   {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"b+\"}, \"content\": \"b\"}]},"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
    "   {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{Cyrillic}+|[^\\\\s]+|\\\\s\"},"
    "    \"behavior\": \"Isolated\", \"invert\": false},"
    "   {\"type\": \"ByteLevel\", \"add_prefix_space\": true}]},"
    " \"post_processor\": {\"type\": \"TemplateProcessing\","
    "   \"single\": [{\"SpecialToken\": {\"id\": \"<|a|>\"}}, {\"Sequence\": {\"id\": \"A\"}}],"
    "   \"special_tokens\": {\"<|a|>\": {\"id\": \"<|a|>\", \"ids\": [6]}}},"
    " \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\","
    "   \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"aab\": 3, \"\xc4\xa0\": 4, \"?\": 5},"
    "   \"merges\": [\"a b\", [\"a\", \"ab\"]]}}";

/* The files that a trial opens, and the ids and the text of its first time: where a trial does
 * without an allocation, they must be the same. */
struct source {
    const char *folder, *path, *json;
    struct token_ids ids;
    struct buffer text;
};

/* To ids and back. */
static int use(struct source *source, const struct tokenizer *tok, struct error *err)
{
    struct token_ids ids = {0};
    struct detokenizer *detok = NULL;
    struct buffer whole = {0};
    const char *text;
    size_t len;
    int rc = 0;
    TRY(tokenizer_encode(tok, sentence, sizeof sentence - 1,
                         TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, &ids, err));
    TRY(detokenizer_open(&detok, tok, false, err));
    for (size_t i = 0; i < ids.n; i++) {
        TRY(detokenizer_push(detok, ids.data[i], &text, &len, err));
        TRY(buffer_append(&whole, text, len, err));
    }
    TRY(detokenizer_finish(detok, &text, &len, err));
    TRY(buffer_append(&whole, text, len, err));
    if (!source->ids.n) TRY(buffer_append(&source->text, whole.data, whole.len, err));
    if (whole.len != source->text.len || memcmp(whole.data, source->text.data, whole.len)) {
        rc = error_set(err, ERR_INTERNAL, "the text is not that of the first time");
        goto out;
    }
    if (!source->ids.n) TRY(token_ids_append(&source->ids, ids.data, ids.n, err));
    if (ids.n != source->ids.n || memcmp(ids.data, source->ids.data, ids.n * sizeof *ids.data)) {
        rc = error_set(err, ERR_INTERNAL, "the ids are not those of the first time");
    }
out:
    detokenizer_close(detok);
    token_ids_free(&ids);
    buffer_free(&whole);
    return rc;
}

static int open_source(struct tokenizer **tok, const struct source *source, struct error *err)
{
    const char *json = source->json;
    char *text = NULL;
    size_t len = json ? strlen(json) : 0;
    int rc = 0;
    if (source->folder) return tokenizer_open(tok, source->folder, err);
    if (!source->path && !json) return tokenizer_open_bytes(tok, 300, err);
    if (source->path) TRY(file_read_text(&text, &len, source->path, 1 << 20, err));
    TRY(tokenizer_parse(tok, text ? text : json, len, NULL, 0, "a file", err));
out:
    free(text);
    return rc;
}

static int open_and_use(void *arg, struct error *err)
{
    struct source *source = arg;
    struct tokenizer *tok = NULL;
    int rc = open_source(&tok, source, err);
    if (!rc) rc = use(source, tok, err);
    tokenizer_close(tok);
    return rc;
}

static void fail_each(const char *what, struct source source, int kinds, long step)
{
    fail_alloc_each(what, open_and_use, &source, kinds, step);
    token_ids_free(&source.ids);
    buffer_free(&source.text);
}

START_TEST(a_file_with_every_component_survives_each_failure)
{
    fail_each("small file", (struct source){.json = small}, FAIL_ALL, 1);
}
END_TEST

START_TEST(a_tokenizer_of_bytes_survives_each_failure)
{
    fail_each("bytes", (struct source){0}, FAIL_ALL, 1);
}
END_TEST

/* Their files have thousands of values, which the JSON library reads by the same few lines: of its
 * allocations only some fail. */
START_TEST(real_files_survive_each_failure_of_our_own_allocations)
{
    static const char *const names[] = {"gpt2", "llama2", "llama3", "metaspace", "qwen2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "%s.json", names[i]);
        fail_each(names[i], (struct source){.path = path}, FAIL_OURS, 1);
        fail_each(names[i], (struct source){.path = path}, FAIL_LIBRARIES, 53);
    }
    fail_each("tales", (struct source){.folder = TALES}, FAIL_OURS, 1);
    fail_each("tales", (struct source){.folder = TALES}, FAIL_LIBRARIES, 997);
}
END_TEST

START_TEST(gguf_files_survive_each_failure)
{
    static const char *const names[] = {GGUF "bpe.gguf", GGUF "spm.gguf", GGUF "gemma.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fail_each(names[i], (struct source){.folder = names[i]}, FAIL_ALL, 1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer without memory");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_file_with_every_component_survives_each_failure);
    tcase_add_test(all, a_tokenizer_of_bytes_survives_each_failure);
    tcase_add_test(all, real_files_survive_each_failure_of_our_own_allocations);
    tcase_add_test(all, gguf_files_survive_each_failure);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
