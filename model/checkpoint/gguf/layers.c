/* The windows of layers. Files of most architectures say how wide they are, but not which layers
 * have them: that is as in the programs that read such files, and in transformers. */
#include "model/checkpoint/gguf/internal.h"

/* A list of a name for each layer, sliding or full. */
struct pattern {
    int period;               /* each such layer is full; 0: all slide */
    struct gguf_array slides; /* of the file, in place of the period, where n is not 0 */
};

static bool slides(const struct pattern *pattern, int layer)
{
    if (pattern->slides.n) return gguf_array_bool(&pattern->slides, (uint64_t)layer);
    return pattern->period == 0 || (layer + 1) % pattern->period != 0;
}

/* The file's pattern is a period, or a list with an element for each layer. */
static int read_pattern(const struct gguf_writing *w, int n_layers, struct pattern *pattern,
                        struct error *err)
{
    char key[GGUF_KEY_BYTES];
    gguf_arch_key(w, "attention.sliding_window_pattern", key);
    if (!gguf_is_array(w->gguf, key)) {
        return gguf_read_int(w->gguf, key, 1, n_layers, &pattern->period, err);
    }
    int rc = gguf_read_bools(w->gguf, key, &pattern->slides, err);
    if (rc || pattern->slides.n == (uint64_t)n_layers) return rc;
    return error_set(err, ERR_FORMAT, "%s: \"%s\" has %llu elements for %d layers",
                     gguf_origin(w->gguf), key, (unsigned long long)pattern->slides.n, n_layers);
}

/* A window that holds for all layers, or none. */
static int write_window(const struct gguf_writing *w, int window, struct error *err)
{
    return gguf_set(w->root, "sliding_window", window ? json_integer(window) : json_null(), err);
}

/* Sets "sliding_window", and "layer_types" by a pattern. */
static int write_windows(const struct gguf_writing *w, int n_layers, int window, int period,
                         struct error *err)
{
    struct pattern pattern = {.period = period};
    json_t *types = json_array();
    int rc = gguf_set(w->root, "layer_types", types, err);
    if (rc) return rc;
    TRY(read_pattern(w, n_layers, &pattern, err));
    for (int i = 0; i < n_layers; i++) {
        bool is_wide = window == 0 || !slides(&pattern, i);
        const char *name = is_wide ? "full_attention" : "sliding_attention";
        TRY(gguf_append(types, json_string(name), err));
    }
    TRY(write_window(w, window, err));
out:
    return rc;
}

static int write_switched(const struct gguf_writing *w, int window, struct error *err)
{
    int rc = 0;
    TRY(gguf_set(w->root, "use_sliding_window", json_boolean(window != 0), err));
    if (window) TRY(gguf_set(w->root, "sliding_window", json_integer(window), err));
out:
    return rc;
}

int gguf_write_layers(const struct gguf_writing *w, int n_layers, struct error *err)
{
    enum { GEMMA2_PERIOD = 2, GEMMA3_PERIOD = 6, OLMO3_PERIOD = 4 };
    int window = 0, rc = 0;
    TRY(gguf_read_equal(w, "attention.sliding_window", 0, GGUF_INT_MOST, &window, err));
    switch (w->arch->id) {
    case GGUF_ARCH_LLAMA: /* also of Mistral, whose window holds for all layers */
        if (!window) return 0;
        TRY(gguf_set_class(w, "MistralForCausalLM", "mistral", err));
        return write_window(w, window, err);
    case GGUF_ARCH_OLMO2: /* also of OLMo 3, which has windows */
        if (!window) return 0;
        TRY(gguf_set_class(w, "Olmo3ForCausalLM", "olmo3", err));
        return write_windows(w, n_layers, window, OLMO3_PERIOD, err);
    case GGUF_ARCH_MISTRAL:
    case GGUF_ARCH_MISTRAL3:
    case GGUF_ARCH_PHI3:
        return write_window(w, window, err);
    case GGUF_ARCH_QWEN2:
    case GGUF_ARCH_QWEN3:
    case GGUF_ARCH_SMOLLM3:
        return write_switched(w, window, err);
    case GGUF_ARCH_GEMMA2:
        return write_windows(w, n_layers, window, GEMMA2_PERIOD, err);
    case GGUF_ARCH_GEMMA3:
        return write_windows(w, n_layers, window, GEMMA3_PERIOD, err);
    case GGUF_ARCH_GRANITE:
        break;
    }
out:
    return rc;
}
