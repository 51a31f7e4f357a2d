/* ctest: libs=checkpoint */
/* A whole GGUF file. Of what is accepted every byte of every tensor and every value is touched, and
 * the metadata are turned into a config, which the reader of configs then reads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/gguf/config.h"
#include "model/checkpoint/gguf/names.h"
#include "model/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static unsigned touch(const uint8_t *at, uint64_t n)
{
    unsigned sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += at[i];
    }
    return sum;
}

static unsigned touch_arrays(const struct gguf *gguf, const char *key)
{
    struct gguf_array array = {0};
    struct error err;
    double sum = 0;
    if (gguf_read_texts(gguf, key, &array, &err) == 0 && array.kind == GGUF_STRING) {
        const uint8_t *at = array.data;
        for (uint64_t i = 0; i < array.n; i++) {
            struct gguf_text text = gguf_next_text(&at);
            sum += touch((const uint8_t *)text.data, text.len);
        }
    }
    if (gguf_read_numbers(gguf, key, &array, &err) == 0) {
        for (uint64_t i = 0; i < array.n; i++) {
            sum += gguf_array_number(&array, i) > 0;
        }
    }
    if (gguf_read_ints(gguf, key, &array, &err) == 0) {
        for (uint64_t i = 0; i < array.n; i++) {
            sum += gguf_array_int(&array, i) > 0;
        }
    }
    return sum > 0;
}

static unsigned touch_key(const struct gguf *gguf, const char *key)
{
    struct error err;
    struct gguf_text text = {0};
    int value = 0;
    double number = 0;
    bool truth = false;
    demand(gguf_has(gguf, key));
    if (gguf_read_int(gguf, key, -5, 5, &value, &err) == 0) demand(value >= -5 && value <= 5);
    if (gguf_read_number(gguf, key, &number, &err) == 0) demand(number == number);
    if (gguf_read_bool(gguf, key, &truth, &err) == 0) value += truth;
    if (gguf_read_text(gguf, key, &text, &err) == 0) {
        value += (int)touch((const uint8_t *)text.data, text.len);
    }
    return (unsigned)value + (gguf_is_array(gguf, key) ? touch_arrays(gguf, key) : 0);
}

/* Reads the metadata as a model, which most files are not. */
static void read_config(const struct gguf *gguf)
{
    static struct model_config cfg;
    const struct gguf_arch *arch;
    struct gguf_config texts;
    struct config_rest rest = {0};
    struct error err;
    if (gguf_arch_find(&arch, gguf, &err)) return;
    if (gguf_config_write(&texts, gguf, arch, &err)) return;
    if (config_parse(&cfg, texts.config, strlen(texts.config), texts.sampling,
                     strlen(texts.sampling), "fuzz", &rest, &err) == 0) {
        demand(cfg.n_layers >= 1 && cfg.n_heads >= 1 && cfg.head_dim >= 1 && cfg.vocab_size >= 1);
    }
    gguf_config_free(&texts);
}

/* A name that a folder has for a tensor must lead back to it. */
static void check_name(const char *name)
{
    static const struct gguf_arch arch = {.layout = GGUF_LAYOUT_NORMS_AROUND};
    char folder[GGUF_NAME_BYTES], file[GGUF_NAME_BYTES];
    if (!gguf_folder_name(&arch, name, folder)) return;
    demand(gguf_file_name(&arch, folder, file) && strcmp(file, name) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile unsigned sum = 0; /* the reads must not be optimised away */
    struct gguf *gguf;
    struct error err;
    size_t n;
    if (gguf_open_bytes(&gguf, data, size, "fuzz", &err)) return 0;
    for (size_t i = 0; i < gguf_n_keys(gguf); i++) {
        sum += touch_key(gguf, gguf_key(gguf, i));
    }
    const struct gguf_tensor *tensors = gguf_tensors(gguf, &n);
    for (size_t i = 0; i < n; i++) {
        demand(i == 0 || strcmp(tensors[i - 1].name, tensors[i].name) < 0);
        demand(gguf_find_tensor(gguf, tensors[i].name) == &tensors[i]);
        demand(tensors[i].data >= data && tensors[i].bytes <= size);
        sum += touch(tensors[i].data, tensors[i].bytes);
        check_name(tensors[i].name);
    }
    read_config(gguf);
    gguf_close(gguf);
    return 0;
}
