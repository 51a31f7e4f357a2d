/* A model on disk: its config, the types of its tensors, its tokenizer. Or a head, which has no
 * tokenizer and reads features of a target instead. */
#include "client/describe_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "client/terminal.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/head_readings.h"
#include "model/checkpoint/served_name.h"
#include "model/checkpoint/type_counts.h"
#include "model/tokenizer/tokenizer.h"

enum { NAME_BYTES = 256 };

struct local_model {
    struct checkpoint *ck;
    struct checkpoint *beside;      /* the MTP layer of a model, as a head; NULL: it has none */
    const struct head_config *head; /* NULL: ck is a model */
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

/* A folder that is no model may be a head; where it is neither, its config.json says which of the
 * two errors is of use. A model with layers that guess may be a head as well. */
static int open_either(struct local_model *m, const char *model, struct error *err)
{
    struct error of_head;
    int rc = checkpoint_open(&m->ck, model, err);
    if (rc == 0) {
        bool is_folder = !checkpoint_is_synthetic(m->ck) && !checkpoint_is_gguf(m->ck);
        if (is_folder && checkpoint_n_guessing_layers(m->ck) > 0) {
            (void)checkpoint_open_head(&m->beside, model, NULL, &of_head);
        }
        return 0;
    }
    if (checkpoint_open_head(&m->ck, model, NULL, &of_head) == 0) return 0;
    if (!checkpoint_is_head_folder(model)) return rc;
    *err = of_head;
    return of_head.code;
}

static int model_open(struct local_model *m, const char *model, struct error *err)
{
    int rc = 0;
    TRY(open_either(m, model, err));
    m->cfg = checkpoint_config(m->ck);
    m->head = checkpoint_head(m->ck);
    checkpoint_served_name(model, m->name, sizeof m->name);
    count(m);
    if (m->head) {
        (void)error_set(&m->no_tok, ERR_NOT_FOUND, "the target's");
    } else if (checkpoint_is_synthetic(m->ck)) {
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
    checkpoint_close(m->beside);
    checkpoint_close(m->ck);
}

static void print_type(const struct type_count *type, const char *name)
{
    printf("%-22s%s: %d tensor%s, %.1f MB", name, type->name, type->n_tensors,
           type->n_tensors == 1 ? "" : "s", (double)type->n_bytes * 1e-6);
    if (type->n_rounded) printf(", %d of them rounded to bf16 when loaded", type->n_rounded);
    fputc('\n', stdout);
}

static const char *source_words(enum head_source source)
{
    return source == HEAD_OWN ? "its own" : "the target's";
}

/* A head that guesses several places from one feature. */
static void print_places(const struct head_config *head)
{
    const struct head_places *p = &head->places;
    printf("%-22s%d from each feature", "places", p->n);
    if (p->hidden_dim) {
        printf(", by a hidden layer of width %d\n", p->hidden_dim);
    } else {
        bool is_repeated = p->n_blocks > p->n_stored_blocks;
        printf(", each by %d block%s%s\n", p->n_blocks, p->n_blocks == 1 ? "" : "s",
               is_repeated ? ", which are one block" : "");
    }
    if (p->has_logits) {
        printf("%-22s%d ids, each place by its own lm_head\n", "guesses", head->n_columns);
    } else if (head->n_columns) {
        printf("%-22s%d ids, by its own lm_head\n", "guesses", head->n_columns);
    } else {
        printf("%-22sall ids, by the target's lm_head\n", "guesses");
    }
}

static void print_block(const struct head_block *block)
{
    printf("%-22s%d rows in one pass, of which %d guess\n", "block", block->size,
           head_block_guesses(block));
    if (block->rank > 0) {
        printf("%-22sof rank %d: each guess changes the logits of the next one\n", "chain",
               block->rank);
    }
    if (block->confidence_width == 0) return;
    terminal_row("confidence", "there, but not used: how many guesses pay is learned from those "
                               "that were accepted");
}

static void print_head(const struct head_config *head, const char *name)
{
    char text[HEAD_READING_BYTES];
    printf("%-22s%s%s\n", name, head_format_name(head),
           head->is_speculators ? ", in the layout of speculators" : "");
    printf("%-22s%d of width %d: %s\n", "features", head->entry.n_features, head->entry.feature_dim,
           head_reading_show(head, text));
    if (head->places.n) {
        print_places(head);
        return;
    }
    printf("%-22s%d ids, by %s lm_head\n", "guesses", head->n_columns,
           source_words(head->logits_from));
    printf("%-22s%s\n", "embedding", source_words(head->embedding_from));
    if (head->block.size > 0) print_block(&head->block);
}

static void print_layers(const struct model_config *cfg)
{
    terminal_row_number("layers", cfg->n_layers);
    terminal_row_number("width", cfg->dim);
    terminal_row_number("width of the MLP", cfg->ffn_dim);
    printf("%-22s%d of %d, %d of keys and values\n", "heads", cfg->n_heads, cfg->head_dim,
           cfg->n_kv_heads);
    terminal_row_number("vocabulary", cfg->vocab_size);
    terminal_row_number("context", cfg->max_positions);
    terminal_row_number("slices", config_slices(cfg));
}

static void print_model(const struct local_model *m)
{
    const struct model_config *cfg = m->cfg;
    terminal_row("model", m->name);
    if (m->head) print_head(m->head, "head");
    terminal_row("architecture", cfg->architecture);
    printf("%-22s%.1f million\n", "parameters", (double)m->n_parameters * 1e-6);
    printf("%-22s%.1f MB\n", "weights", (double)m->n_bytes * 1e-6);
    for (int i = 0; i < m->n_types; i++) {
        print_type(&m->types[i], i ? "" : "tensors");
    }
    if (cfg->n_layers) print_layers(cfg);
    const char *key;
    int mask = checkpoint_mask_token(m->ck, &key);
    if (mask >= 0) {
        printf("%-22s%d (\"%s\"): as a draft it makes all guesses in one pass\n", "mask token",
               mask, key);
    }
    if (m->beside) print_head(checkpoint_head(m->beside), "head beside it");
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

static json_t *block_json(const struct head_block *block)
{
    if (block->size == 0) return json_null();
    return json_pack("{si si si sb}", "rows", block->size, "guesses", head_block_guesses(block),
                     "chain_rank", block->rank, "confidence", block->confidence_width > 0);
}

static json_t *head_json(const struct head_config *head)
{
    char text[HEAD_READING_BYTES];
    if (!head) return json_null();
    return json_pack("{ss sb si si ss si sb sb si so}", "format", head_format_name(head),
                     "speculators_layout", head->is_speculators, "features", head->entry.n_features,
                     "feature_width", head->entry.feature_dim, "reads",
                     head_reading_show(head, text), "guessed_ids", head->n_columns, "own_embedding",
                     head->embedding_from == HEAD_OWN, "own_lm_head",
                     head->logits_from == HEAD_OWN || head->places.has_logits, "places",
                     head->places.n, "block", block_json(&head->block));
}

/* A head of places has no layers of which this would be a property. */
static json_t *layers_json(const struct model_config *cfg, int value)
{
    return cfg->n_layers ? json_integer(value) : json_null();
}

static json_t *model_json(const struct local_model *m)
{
    const struct model_config *cfg = m->cfg;
    const struct head_config *head = m->beside ? checkpoint_head(m->beside) : m->head;
    int mask = checkpoint_mask_token(m->ck, NULL);
    return json_pack("{ss ss sI sI so si si so so so so si so so so so so}", "model", m->name,
                     "architecture", cfg->architecture, "parameters", (json_int_t)m->n_parameters,
                     "weight_bytes", (json_int_t)m->n_bytes, "types", types_json(m), "n_layers",
                     cfg->n_layers, "width", cfg->dim, "mlp_width", layers_json(cfg, cfg->ffn_dim),
                     "n_heads", layers_json(cfg, cfg->n_heads), "n_kv_heads",
                     layers_json(cfg, cfg->n_kv_heads), "head_width",
                     layers_json(cfg, cfg->head_dim), "vocab_size", cfg->vocab_size,
                     "context_limit", layers_json(cfg, cfg->max_positions), "n_slices",
                     layers_json(cfg, config_slices(cfg)), "tokenizer_vocab_size",
                     m->tok ? json_integer(tokenizer_vocab_size(m->tok)) : json_null(), "head",
                     head_json(head), "mask_token", mask >= 0 ? json_integer(mask) : json_null());
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

int describe_model_facts(struct model_facts *facts, const char *model, struct error *err)
{
    struct local_model m = {0};
    int rc = 0;
    *facts = (struct model_facts){.is_head = false};
    TRY(open_either(&m, model, err));
    count(&m);
    snprintf(facts->architecture, sizeof facts->architecture, "%s",
             checkpoint_config(m.ck)->architecture);
    facts->weight_bytes = m.n_bytes;
    facts->n_parameters = m.n_parameters;
    facts->is_head = checkpoint_head(m.ck) != NULL;
    facts->is_gguf = checkpoint_is_gguf(m.ck);
out:
    model_close(&m);
    return rc;
}
