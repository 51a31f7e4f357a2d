/* A model on disk: its config, the types of its tensors, its tokenizer. */
#include "client/describe_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "client/terminal.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/served_name.h"
#include "model/checkpoint/type_counts.h"
#include "model/tokenizer/tokenizer.h"

enum { NAME_BYTES = 256 };

struct local_model {
    struct checkpoint *ck;
    const struct model_config *cfg;
    char name[NAME_BYTES];
    struct type_count types[TYPE_COUNTS_MAX];
    int n_types;
    uint64_t n_bytes, n_parameters;
    struct tokenizer *tok; /* NULL: there is none that is understood */
    struct error no_tok;   /* why */
};

static void count(struct local_model *m)
{
    size_t n;
    const struct tensor_spec *specs = checkpoint_tensors(m->ck, &n);
    for (size_t i = 0; i < n; i++) {
        m->n_parameters += (uint64_t)specs[i].n_rows * (uint64_t)specs[i].n_cols;
    }
    m->n_types = checkpoint_count_types(m->ck, m->types);
    for (int i = 0; i < m->n_types; i++) {
        m->n_bytes += m->types[i].n_bytes;
    }
}

static int model_open(struct local_model *m, const char *model, struct error *err)
{
    int rc = 0;
    TRY(checkpoint_open(&m->ck, model, err));
    m->cfg = checkpoint_config(m->ck);
    checkpoint_served_name(model, m->name, sizeof m->name);
    count(m);
    if (checkpoint_is_synthetic(m->ck)) {
        TRY(tokenizer_open_bytes(&m->tok, m->cfg->vocab_size, err));
    } else if (tokenizer_open(&m->tok, checkpoint_name(m->ck), &m->no_tok)) {
        m->tok = NULL;
    }
out:
    return rc;
}

static void model_close(struct local_model *m)
{
    tokenizer_close(m->tok);
    checkpoint_close(m->ck);
}

static void print_type(const struct type_count *type, const char *name)
{
    printf("%-22s%s: %d tensor%s, %.1f MB", name, type->name, type->n_tensors,
           type->n_tensors == 1 ? "" : "s", (double)type->n_bytes * 1e-6);
    if (type->n_rounded) printf(", %d of them rounded to bf16 when loaded", type->n_rounded);
    fputc('\n', stdout);
}

static void print_model(const struct local_model *m)
{
    const struct model_config *cfg = m->cfg;
    terminal_row("model", m->name);
    terminal_row("architecture", cfg->architecture);
    printf("%-22s%.1f million\n", "parameters", (double)m->n_parameters * 1e-6);
    printf("%-22s%.1f MB\n", "weights", (double)m->n_bytes * 1e-6);
    for (int i = 0; i < m->n_types; i++) {
        print_type(&m->types[i], i ? "" : "tensors");
    }
    terminal_row_number("layers", cfg->n_layers);
    terminal_row_number("width", cfg->dim);
    terminal_row_number("width of the MLP", cfg->ffn_dim);
    printf("%-22s%d of %d, %d of keys and values\n", "heads", cfg->n_heads, cfg->head_dim,
           cfg->n_kv_heads);
    terminal_row_number("vocabulary", cfg->vocab_size);
    terminal_row_number("context", cfg->max_positions);
    terminal_row_number("slices", config_slices(cfg));
    if (m->tok) {
        terminal_row_number("tokens of tokenizer", tokenizer_vocab_size(m->tok));
    } else {
        terminal_row("tokenizer", m->no_tok.text);
    }
    for (int i = 0; i < CHECKPOINT_REMARKS; i++) {
        const char *text = checkpoint_remark(m->ck, (enum checkpoint_remark)i);
        if (text) terminal_row("remark", text);
    }
}

static json_t *types_json(const struct local_model *m)
{
    json_t *list = json_array();
    for (int i = 0; i < m->n_types; i++) {
        const struct type_count *type = &m->types[i];
        json_array_append_new(list, json_pack("{ss si si sI}", "type", type->name, "tensors",
                                              type->n_tensors, "rounded", type->n_rounded, "bytes",
                                              (json_int_t)type->n_bytes));
    }
    return list;
}

static json_t *model_json(const struct local_model *m)
{
    const struct model_config *cfg = m->cfg;
    return json_pack("{ss ss sI sI so si si si si si si si si si so}", "model", m->name,
                     "architecture", cfg->architecture, "parameters", (json_int_t)m->n_parameters,
                     "weight_bytes", (json_int_t)m->n_bytes, "types", types_json(m), "n_layers",
                     cfg->n_layers, "width", cfg->dim, "mlp_width", cfg->ffn_dim, "n_heads",
                     cfg->n_heads, "n_kv_heads", cfg->n_kv_heads, "head_width", cfg->head_dim,
                     "vocab_size", cfg->vocab_size, "context_limit", cfg->max_positions, "n_slices",
                     config_slices(cfg), "tokenizer_vocab_size",
                     m->tok ? json_integer(tokenizer_vocab_size(m->tok)) : json_null());
}

int describe_model(const char *model, bool is_json, struct error *err)
{
    struct local_model m = {0};
    int rc = 0;
    TRY(model_open(&m, model, err));
    if (is_json) {
        rc = client_print_json(model_json(&m), err);
    } else {
        print_model(&m);
        rc = client_flush(err);
    }
out:
    model_close(&m);
    return rc;
}
