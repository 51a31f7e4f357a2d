/* The architectures of GGUF files that are read: which family of model/checkpoint/config they are,
 * and how their tensors differ from those of a Hugging Face folder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/gguf/gguf.h"

enum gguf_arch_id {
    GGUF_ARCH_LLAMA,
    GGUF_ARCH_MISTRAL,
    GGUF_ARCH_MISTRAL3,
    GGUF_ARCH_QWEN2,
    GGUF_ARCH_QWEN3,
    GGUF_ARCH_GEMMA2,
    GGUF_ARCH_GEMMA3,
    GGUF_ARCH_PHI3,
    GGUF_ARCH_OLMO2,
    GGUF_ARCH_GRANITE,
    GGUF_ARCH_SMOLLM3
};

/* Names of the norms and of the tensors that are several ones in other architectures. */
enum gguf_layout {
    GGUF_LAYOUT_PLAIN,
    GGUF_LAYOUT_NORMS_AROUND,
    GGUF_LAYOUT_NORMS_AFTER,
    GGUF_LAYOUT_FUSED
};

struct gguf_arch {
    enum gguf_arch_id id;
    const char *name; /* "llama", in general.architecture */
    enum gguf_layout layout;
    /* The two halves of a head's rows in q and k alternate, as programs need them that rotate
     * neighbours. */
    bool is_paired;
    bool has_whole_norms; /* Gemma: norms are stored as they are used, not less 1 */
};

/* Errors: ERR_FORMAT the file has no architecture, ERR_UNSUPPORTED names it and those that are
 * read. */
int gguf_arch_find(const struct gguf_arch **arch, const struct gguf *gguf, struct error *err);
