/* The table of architectures. */
#include "model/checkpoint/gguf/arch.h"

#include <stdio.h>

static const struct gguf_arch archs[] = {
    {.id = GGUF_ARCH_LLAMA, .name = "llama", .is_paired = true},
    {.id = GGUF_ARCH_MISTRAL, .name = "mistral", .is_paired = true},
    {.id = GGUF_ARCH_MISTRAL3, .name = "mistral3", .is_paired = true},
    {.id = GGUF_ARCH_QWEN2, .name = "qwen2"},
    {.id = GGUF_ARCH_QWEN3, .name = "qwen3"},
    {.id = GGUF_ARCH_GEMMA2,
     .name = "gemma2",
     .layout = GGUF_LAYOUT_NORMS_AROUND,
     .has_whole_norms = true},
    {.id = GGUF_ARCH_GEMMA3,
     .name = "gemma3",
     .layout = GGUF_LAYOUT_NORMS_AROUND,
     .has_whole_norms = true},
    {.id = GGUF_ARCH_PHI3, .name = "phi3", .layout = GGUF_LAYOUT_FUSED},
    {.id = GGUF_ARCH_OLMO2, .name = "olmo2", .layout = GGUF_LAYOUT_NORMS_AFTER},
    {.id = GGUF_ARCH_GRANITE, .name = "granite", .is_paired = true},
    {.id = GGUF_ARCH_SMOLLM3, .name = "smollm3", .is_paired = true},
};
enum { N_ARCHS = sizeof archs / sizeof *archs };

static void list_names(char *text, size_t text_bytes)
{
    size_t len = 0;
    for (int i = 0; i < N_ARCHS && len < text_bytes; i++) {
        int n = snprintf(text + len, text_bytes - len, "%s%s", i ? ", " : "", archs[i].name);
        len += (size_t)n;
    }
}

int gguf_arch_find(const struct gguf_arch **arch, const struct gguf *gguf, struct error *err)
{
    static const char key[] = "general.architecture";
    char list[256];
    struct gguf_text name = {0};
    int rc = gguf_read_text(gguf, key, &name, err);
    if (rc) return rc;
    if (!name.data) {
        return error_set(err, ERR_FORMAT, "%s lacks \"%s\", so it is not a model",
                         gguf_origin(gguf), key);
    }
    for (int i = 0; i < N_ARCHS; i++) {
        if (!gguf_text_is(&name, archs[i].name)) continue;
        *arch = &archs[i];
        return 0;
    }
    list_names(list, sizeof list);
    return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = \"%.*s\" is not supported; these are: %s",
                     gguf_origin(gguf), key, name.len < 60 ? (int)name.len : 60, name.data, list);
}
