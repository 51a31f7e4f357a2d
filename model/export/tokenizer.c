/* The tokenizer of a synthetic model as files: 256 bytes plus fillers. */
#include <stdio.h>
#include <stdlib.h>

#include "model/export/text.h"
#include "model/tokenizer/table.h"

enum { N_BYTES = 256 };

/* "ids": the GPT-2 alphabet gives every byte a printable character. */
static void write_vocabulary(FILE *out, int n_vocab)
{
    for (int id = 0; id < n_vocab; id++) {
        const char *comma = id ? "," : "";
        char character[2];
        if (id >= N_BYTES) {
            fprintf(out, "%s\n      \"<%d>\": %d", comma, id, id);
            continue;
        }
        size_t len = byte_level_char((uint8_t)id, character);
        const char *escape = character[0] == '"' || character[0] == '\\' ? "\\" : "";
        fprintf(out, "%s\n      \"%s%.*s\": %d", comma, escape, (int)len, character, id);
    }
}

static int finish(FILE *out, char **text, const char *name, struct error *err)
{
    if (out && fclose(out) == 0) return 0;
    free(*text);
    *text = NULL;
    return error_set(err, ERR_NO_MEMORY, "no memory for %s", name);
}

int export_tokenizer_text(int n_vocab, char **text, size_t *len, struct error *err)
{
    static const char head[] =
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
        "  \"added_tokens\": [],\n  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": false, \"use_regex\": false},\n"
        "  \"post_processor\": null,\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": false, \"use_regex\": false},\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {";
    *text = NULL;
    FILE *out = open_memstream(text, len);
    if (out) {
        fputs(head, out);
        write_vocabulary(out, n_vocab);
        fputs("\n    },\n    \"merges\": []\n  }\n}\n", out);
    }
    return finish(out, text, "tokenizer.json", err);
}

int export_tokenizer_config_text(int max_positions, char **text, size_t *len, struct error *err)
{
    *text = NULL;
    FILE *out = open_memstream(text, len);
    if (out) {
        fprintf(out,
                "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %d\n}\n",
                max_positions);
    }
    return finish(out, text, "tokenizer_config.json", err);
}
