/* Shows a text of an answer, or makes JSON of it. */
#include "client/choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/painter.h"
#include "client/token_table.h"

int choice_open(struct choice *choice, int index, const struct generate_options *options,
                const struct terminal *shown, struct error *err)
{
    *choice = (struct choice){.index = index, .options = options, .terminal = *shown};
    choice->kept = open_memstream(&choice->kept_text, &choice->kept_len);
    if (!choice->kept) return error_set(err, ERR_NO_MEMORY, "no memory for text %d", index);
    choice->terminal.out = choice->kept;
    return 0;
}

void choice_close(struct choice *choice)
{
    if (choice->kept) fclose(choice->kept);
    free(choice->kept_text);
    free(choice->summary);
    buffer_free(&choice->text);
    token_ids_free(&choice->ids);
    json_decref(choice->steps);
    json_decref(choice->logprobs);
    json_decref(choice->figures);
    *choice = (struct choice){0};
}

/* ---- showing ---- */

/* A line that says which text follows, where there are several. */
static void print_head(const struct choice *choice, FILE *out)
{
    struct terminal terminal = choice->terminal;
    terminal.out = out;
    if (choice->options->request.n < 2) return;
    terminal_style(&terminal, STYLE_DIM);
    fprintf(out, "--- choice %d ---", choice->index);
    terminal_style(&terminal, STYLE_PLAIN);
    fputc('\n', out);
}

void choice_take_turn(struct choice *choice, FILE *out)
{
    print_head(choice, out);
    fclose(choice->kept);
    choice->kept = NULL;
    choice->terminal.out = out;
    if (choice->kept_text) fwrite(choice->kept_text, 1, choice->kept_len, out);
}

static void show_table(struct choice *choice, const struct generate_tokens *tokens)
{
    if (!choice->has_head) {
        token_table_head(&choice->terminal, choice->options->request.logprobs > 0);
        choice->has_head = true;
    }
    for (int i = 0; i < tokens->n; i++) {
        const struct token_line line = token_line_of(tokens, i);
        token_table_line(&choice->terminal, choice->n_lines++, &line);
    }
    choice->ends_with_line = true;
}

int choice_show(struct choice *choice, const struct generate_tokens *tokens, struct error *err)
{
    const struct terminal *terminal = &choice->terminal;
    choice->has_begun = true;
    if (choice->options->request.logprobs >= 0) {
        show_table(choice, tokens);
    } else if (choice->options->request.show_drafts) {
        painter_drafts(terminal, tokens, &choice->ends_with_line);
    } else {
        terminal_text(terminal, tokens->text, tokens->text_len);
        if (tokens->text_len) choice->ends_with_line = tokens->text[tokens->text_len - 1] == '\n';
    }
    if (choice->kept) return 0;
    return client_flush(err);
}

int choice_keep_summary(struct choice *choice, const struct generate_summary *summary,
                        const struct terminal *shown, struct error *err)
{
    struct terminal terminal = *shown;
    terminal.out = open_memstream(&choice->summary, &choice->summary_len);
    if (!terminal.out) return error_set(err, ERR_NO_MEMORY, "no memory for the summary");
    if (choice->options->has_stats) {
        figures_show(&terminal, summary);
    } else {
        figures_show_brief(&terminal, summary);
    }
    fclose(terminal.out);
    return 0;
}

/* ---- keeping, for --json ---- */

static json_t *guess_json(const struct generate_guess *guess)
{
    json_t *made = json_pack("{si si si ss sf}", "place", guess->place, "sibling", guess->sibling,
                             "id", (int)guess->id, "text", guess->text, "q", (double)guess->q);
    if (guess->p >= 0) json_object_set_new(made, "p", json_real((double)guess->p));
    if (guess->is_untried) json_object_set_new(made, "untried", json_true());
    return made;
}

/* As HTTP tells it, but for the times. */
static json_t *round_json(const struct generate_round *round)
{
    json_t *list = json_array();
    for (int i = 0; i < round->n_guesses; i++) {
        json_array_append_new(list, guess_json(&round->guesses[i]));
    }
    return json_pack("{ss so si}", "drafter", round->drafter, "guesses", list, "kept",
                     round->n_kept);
}

static json_t *step_json(const struct generate_tokens *tokens)
{
    static const char *const names[] = {"plain", "accepted", "replacement", "bonus"};
    json_t *list = json_array();
    for (int i = 0; i < tokens->n; i++) {
        struct piece piece = painter_piece(tokens, i);
        json_array_append_new(list, json_pack("{si ss so}", "id", (int)tokens->ids[i], "origin",
                                              names[tokens->origins[i]], "text",
                                              client_json_text(piece.text, piece.len)));
    }
    json_t *step = json_pack("{so}", "tokens", list);
    if (step && tokens->round) json_object_set_new(step, "round", round_json(tokens->round));
    if (step && tokens->rejected_id >= 0) {
        json_object_set_new(
            step, "rejected",
            json_pack("{si ss}", "id", (int)tokens->rejected_id, "text", tokens->rejected_text));
    }
    return step;
}

static int add_step(struct choice *choice, const struct generate_tokens *tokens, struct error *err)
{
    if (!choice->options->request.show_drafts) return 0;
    if (!choice->steps) choice->steps = json_array();
    if (json_array_append_new(choice->steps, step_json(tokens)) == 0) return 0;
    return error_set(err, ERR_NO_MEMORY, "no memory for the steps");
}

static int add_logprobs(struct choice *choice, const struct generate_tokens *tokens,
                        struct error *err)
{
    if (choice->options->request.logprobs < 0) return 0;
    if (!choice->logprobs) choice->logprobs = json_array();
    for (int i = 0; i < tokens->n; i++) {
        const struct token_line line = token_line_of(tokens, i);
        if (json_array_append_new(choice->logprobs, token_line_json(&line)) == 0) continue;
        return error_set(err, ERR_NO_MEMORY, "no memory for the log-probabilities");
    }
    return 0;
}

int choice_add(struct choice *choice, const struct generate_tokens *tokens, struct error *err)
{
    int rc = 0;
    TRY(buffer_append(&choice->text, tokens->text, tokens->text_len, err));
    TRY(token_ids_append(&choice->ids, tokens->ids, (size_t)tokens->n, err));
    TRY(add_step(choice, tokens, err));
    TRY(add_logprobs(choice, tokens, err));
out:
    return rc;
}

int choice_add_summary(struct choice *choice, const struct generate_summary *summary,
                       struct error *err)
{
    choice->figures = figures_json(summary);
    return choice->figures ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for the summary");
}

json_t *choice_json(const struct choice *choice)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < choice->ids.n; i++) {
        json_array_append_new(ids, json_integer(choice->ids.data[i]));
    }
    json_t *object = json_pack("{si so so}", "index", choice->index, "text",
                               client_json_text((const char *)choice->text.data, choice->text.len),
                               "token_ids", ids);
    bool failed = !object || json_object_update(object, choice->figures) != 0;
    if (!failed && choice->logprobs) {
        failed = json_object_set(object, "logprobs", choice->logprobs) != 0;
    }
    if (!failed && choice->steps) failed = json_object_set(object, "steps", choice->steps) != 0;
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
