/* The tokenizer of a GGUF file, through the reader of tokenizer.json: only the vocabulary and the
 * merges, which are long, come to it as lists. */
#include "model/tokenizer/gguf/components.h"
#include "model/tokenizer/internal.h"

int tokenizer_read_gguf(struct tokenizer *tok, const struct gguf *gguf, struct error *err)
{
    struct gguf_vocabulary lists = {0};
    json_t *root = NULL;
    int rc = 0;
    TRY(gguf_vocabulary_read(&lists, gguf, err));
    TRY(gguf_components_make(&root, gguf, &lists, &tok->remark, err));
    TRY(tokenizer_read(tok, root, NULL, &lists, gguf_origin(gguf), err));
out:
    json_decref(root);
    gguf_vocabulary_free(&lists);
    return rc;
}
