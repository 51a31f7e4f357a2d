/* Windows of attention. */
#include "model/checkpoint/gguf/internal.h"

/* Mistral's window holds for all layers; a file of the architecture llama has one only then. */
static int write_mistral(const struct gguf_writing *w, int window, struct error *err)
{
    int rc = 0;
    if (w->arch->id == GGUF_ARCH_LLAMA && window) {
        TRY(gguf_set(w->root, "architectures", json_pack("[s]", "MistralForCausalLM"), err));
        TRY(gguf_set(w->root, "model_type", json_string("mistral"), err));
    }
    if (w->arch->id == GGUF_ARCH_LLAMA && !window) return 0;
    TRY(gguf_set(w->root, "sliding_window", window ? json_integer(window) : json_null(), err));
out:
    return rc;
}

int gguf_write_layers(const struct gguf_writing *w, int n_layers, struct error *err)
{
    int window = 0, rc = 0;
    (void)n_layers;
    TRY(gguf_read_equal(w, "attention.sliding_window", 0, GGUF_INT_MOST, &window, err));
    switch (w->arch->id) {
    case GGUF_ARCH_QWEN2:
    case GGUF_ARCH_QWEN3:
        TRY(gguf_set(w->root, "use_sliding_window", json_boolean(window != 0), err));
        if (window) TRY(gguf_set(w->root, "sliding_window", json_integer(window), err));
        break;
    default:
        TRY(write_mistral(w, window, err));
    }
out:
    return rc;
}
