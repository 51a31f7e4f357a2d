/* Writes CSV (RFC 4180, one line per row) and JSON. An unknown value is an empty field, or null. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "client/bench/report.h"

static int check_file(FILE *file, const char *path, struct error *err)
{
    if (fflush(file) == 0 && !ferror(file)) return 0;
    return error_set(err, ERR_IO, "cannot write %.200s: %s", path, strerror(errno));
}

int bench_csv_header(FILE *file, const char *path, struct error *err)
{
    fputs("repetition,place,arm,T,K,concurrency,rate", file);
    for (int i = 0; i < N_BENCH_FIGURES; i++)
        fprintf(file, ",%s", bench_figure_name((enum bench_figure)i));
    fputs(",temperature,rule,max_tokens,options,error,target_model,draft_model,arithmetic\n", file);
    return check_file(file, path, err);
}

/* Puts a field in quotes if CSV needs them. Newlines become blanks, so that a row is one line. */
static void put_text(FILE *file, const char *text)
{
    fputc(',', file);
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, file);
    }
    fputc('"', file);
}

static void put_number(FILE *file, double number)
{
    fputc(',', file);
    if (isfinite(number)) fprintf(file, "%.9g", number);
}

static void put_row(FILE *file, const struct bench_row *row, const struct bench_results *results)
{
    const struct bench_arm *arm = row->arm;
    const struct generate_request *request = &arm->generate.request;
    bool is_open_loop = arm->rate_hz > 0;
    fprintf(file, "%d,%d", row->repetition, row->place);
    put_text(file, arm->label);
    fprintf(file, ",%d", row->n_ranks);
    if (row->is_planned) {
        fputs("," SWEEP_PLAN, file);
    } else {
        put_number(file, row->n_draft >= 0 ? row->n_draft : (double)NAN);
    }
    put_number(file, is_open_loop ? (double)NAN : arm->concurrency);
    put_number(file, is_open_loop ? (double)arm->rate_hz : (double)NAN);
    for (int i = 0; i < N_BENCH_FIGURES; i++)
        put_number(file, row->figures[i]);
    float temperature = request->sampling.temperature;
    put_number(file, temperature == GENERATE_OPEN ? (double)NAN : (double)temperature);
    put_text(file, request->rule);
    fprintf(file, ",%d", request->max_tokens);
    put_text(file, arm->others);
    put_text(file, row->error);
    put_text(file, results->target_model);
    put_text(file, results->draft_model);
    put_text(file, results->arithmetic);
    fputc('\n', file);
}

int bench_csv_rows(FILE *file, const char *path, const struct bench_results *results, int first,
                   struct error *err)
{
    for (int i = first; i < results->n_rows; i++)
        put_row(file, &results->rows[i], results);
    return check_file(file, path, err);
}

/* ---- JSON ---- */

static json_t *arm_json(const struct bench_arm *arm)
{
    bool is_open_loop = arm->rate_hz > 0;
    return json_pack("{ss so so}", "arm", arm->label, "concurrency",
                     is_open_loop ? json_null() : json_integer(arm->concurrency), "rate",
                     is_open_loop ? json_real((double)arm->rate_hz) : json_null());
}

static json_t *row_json(const struct bench_row *row)
{
    json_t *object = arm_json(row->arm);
    json_object_set_new(object, "repetition", json_integer(row->repetition));
    json_object_set_new(object, "place", json_integer(row->place));
    json_object_set_new(object, "T", json_integer(row->n_ranks));
    json_object_set_new(object, "K",
                        row->is_planned     ? json_string(SWEEP_PLAN)
                        : row->n_draft >= 0 ? json_integer(row->n_draft)
                                            : json_null());
    for (int i = 0; i < N_BENCH_FIGURES; i++) {
        json_object_set_new(object, bench_figure_name((enum bench_figure)i),
                            client_json_number(row->figures[i]));
    }
    json_object_set_new(object, "error", client_json_text(row->error, strlen(row->error)));
    return object;
}

/* The three quartiles of each figure over the repetitions of an arm. */
static json_t *quartiles_json(const struct bench_results *results, const struct bench_arm *arm)
{
    json_t *object = arm_json(arm);
    for (int i = 0; i < N_BENCH_FIGURES; i++) {
        struct quartiles q = bench_figure_quartiles(results, arm, (enum bench_figure)i);
        json_t *values = json_pack("[o, o, o]", client_json_number(q.low),
                                   client_json_number(q.median), client_json_number(q.high));
        json_object_set_new(object, bench_figure_name((enum bench_figure)i), values);
    }
    return object;
}

int bench_json_write(FILE *file, const char *path, const struct bench_results *results,
                     struct error *err)
{
    json_t *rows = json_array(), *quartiles = json_array();
    json_t *requests = results->records ? records_json(results->records) : json_array();
    for (int i = 0; i < results->n_rows; i++)
        json_array_append_new(rows, row_json(&results->rows[i]));
    for (int i = 0; i < results->n_arms; i++)
        json_array_append_new(quartiles, quartiles_json(results, &results->arms[i]));
    json_t *object =
        json_pack("{ss ss ss ss so so so}", "version", OUTRIDER_VERSION, "target_model",
                  results->target_model, "draft_model", results->draft_model, "arithmetic",
                  results->arithmetic, "quartiles", quartiles, "rows", rows, "requests", requests);
    if (!object) return error_set(err, ERR_NO_MEMORY, "no memory for the JSON object");
    json_dumpf(object, file, JSON_REAL_PRECISION(9) | JSON_INDENT(1));
    fputc('\n', file);
    json_decref(object);
    return check_file(file, path, err);
}
