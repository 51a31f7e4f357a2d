/* Names of tensors in GGUF files and in Hugging Face folders. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "model/checkpoint/gguf/arch.h"

enum { GGUF_NAME_BYTES = 256 };

/* Writes the folder's name of a tensor of a GGUF file into name; false: it has none. */
bool gguf_folder_name(const struct gguf_arch *arch, const char *gguf_name,
                      char name[GGUF_NAME_BYTES]);
/* Writes the file's name of a tensor that a folder calls folder_name; false: it has none. */
bool gguf_file_name(const struct gguf_arch *arch, const char *folder_name,
                    char name[GGUF_NAME_BYTES]);

/* True if the file's tensor is part of q or k. */
bool gguf_is_of_q_or_k(const char *gguf_name);

/* True if it is no weight, but a table that the config has in another form: factors of rope. */
bool gguf_is_table(const char *gguf_name);
