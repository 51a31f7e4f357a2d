/* Prints tokens with their log-probabilities. */
#include "client/token_table.h"

#include <math.h>
#include <string.h>

#include "client/client.h"
#include "client/painter.h"

enum { TOKEN_COLUMNS = 16 };

struct token_line token_line_of_score(const struct score_token *token)
{
    return (struct token_line){
        .id = token->id,
        .text = token->text,
        .text_len = strlen(token->text),
        .has_logprob = token->has_logprob,
        .logprob = token->logprob,
        .n_top = token->n_top,
        .top = token->top,
    };
}

struct token_line token_line_of(const struct generate_tokens *tokens, int i)
{
    struct piece piece = painter_piece(tokens, i);
    struct token_line line = {.id = tokens->ids[i], .text = piece.text, .text_len = piece.len};
    if (!tokens->logprobs) return line;
    line.has_logprob = true;
    line.logprob = tokens->logprobs[i].logprob;
    line.n_top = tokens->logprobs[i].n_top;
    line.top = tokens->logprobs[i].top;
    return line;
}

static void print_quoted(const struct terminal *terminal, const char *text, size_t len, int columns)
{
    fputc('"', terminal->out);
    int used = terminal_quoted(terminal, text, len);
    fputc('"', terminal->out);
    if (used < columns) fprintf(terminal->out, "%*s", columns - used, "");
}

void token_table_head(const struct terminal *terminal, bool has_best)
{
    fprintf(terminal->out, "%7s %7s  %-*s %9s%s\n", "#", "id", TOKEN_COLUMNS + 2, "token",
            "logprob", has_best ? "  best" : "");
}

void token_table_line(const struct terminal *terminal, int position, const struct token_line *line)
{
    FILE *out = terminal->out;
    fprintf(out, "%7d %7d  ", position, (int)line->id);
    print_quoted(terminal, line->text, line->text_len, TOKEN_COLUMNS);
    if (line->has_logprob) {
        fprintf(out, " %9.4f", (double)line->logprob);
    } else {
        fprintf(out, " %9s", "-");
    }
    for (int i = 0; i < line->n_top; i++) {
        fputs("  ", out);
        print_quoted(terminal, line->top[i].text, strlen(line->top[i].text), 0);
        fprintf(out, " %.4f", (double)line->top[i].logprob);
    }
    fputc('\n', out);
}

json_t *token_line_json(const struct token_line *line)
{
    json_t *top = json_array();
    for (int i = 0; i < line->n_top; i++) {
        const struct token_alternative *a = &line->top[i];
        json_array_append_new(top, json_pack("{si ss so}", "id", (int)a->id, "text", a->text,
                                             "logprob", client_json_number((double)a->logprob)));
    }
    double logprob = line->has_logprob ? (double)line->logprob : (double)NAN;
    return json_pack("{si so so so}", "id", (int)line->id, "text",
                     client_json_text(line->text, line->text_len), "logprob",
                     client_json_number(logprob), "top", top);
}
