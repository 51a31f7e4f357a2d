/* outrider describe: what a coordinator serves, and with which workers; or a model on disk. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "client/describe_model.h"
#include "client/figures/figures.h"
#include "client/server.h"
#include "client/terminal.h"
#include "proto/generation_wire.h"

enum { HEX_BYTES = 20, NAME_BYTES = 32 };

struct describe {
    struct connection connection;
    bool is_json;
    const char *model; /* NULL: a coordinator is asked */
    struct server server;
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct describe *d = fields;
    return client_take_argument(&d->model, word, "model", err);
}

#define FIELD(member) OPTION_FIELD(struct describe, member)

static const struct option_row rows[] = {
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct describe),
    {0},
};

static const char doc[] =
    "Prints what the coordinator serves, and by which workers; with MODEL, what that folder or "
    "GGUF file holds: architecture, sizes, the types of its tensors, context and tokenizer, and of "
    "a head that reads a target's features which ones.\v"
    "A coordinator answers also while it is not serving and says why. MODEL needs no "
    "server.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct describe *d, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_DESCRIBE_",
        .example = "outrider describe models/target",
        .name = "describe",
        .args_doc = "[MODEL]",
        .doc = doc,
        .take = take_word,
        .parts = {{rows, d, NULL}, {connection_rows, &d->connection, NULL}}};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    if (d->model) goto out;
    TRY(connection_open(&d->connection, err));
out:
    return rc;
}

static void print_estimates(const struct estimates *e)
{
    terminal_row_number("rounds measured", e->n_rounds);
    if (e->n_rounds == 0) return;
    printf("%-22s%.0f us", "a guess", (double)e->draft_us);
    if (e->read_us > 0) printf(", %.1f us for each token of a text read", (double)e->read_us);
    fputc('\n', stdout);
    printf("%-22s%.0f us, %.1f us for each further row\n", "a step", (double)e->step_us,
           (double)e->row_us);
    printf("%-22s%.0f us\n", "rest of a round", (double)e->rtt_us);
    printf("%-22s%.3f", "alpha", (double)e->alpha);
    for (int i = 0; i < e->n_positions; i++) {
        printf("%s%.2f", i ? " " : "; by position ", (double)e->alpha_at[i]);
    }
    fputc('\n', stdout);
}

/* ---- load ---- */

static void print_blocks(const char *name, const struct kv_blocks *kv)
{
    printf("%-22s%d blocks in use, %d free, %d free that keep a prefix\n", name, kv->in_use,
           kv->free, kv->cached);
}

static void print_ends(const struct service_load *load)
{
    bool is_first = true;
    printf("%-22s", "ended");
    for (int i = 0; i < JOB_ENDS; i++) {
        if (!load->ends[i]) continue;
        printf("%s%" PRIu64 " %s", is_first ? "" : ", ", load->ends[i], job_end_names[i]);
        is_first = false;
    }
    puts(is_first ? "none" : "");
}

static void print_load(const struct service_description *s)
{
    const struct service_load *load = &s->load;
    printf("%-22s%.0f s\n", "up", (double)load->uptime_us / 1e6);
    printf("%-22s%d of at most %d\n", "sequences running", load->running, load->sequences_max);
    terminal_row_number("sequences waiting", load->waiting);
    print_blocks("KV of the target", &load->target_kv);
    if (s->draft_model[0]) print_blocks("KV of the draft", &load->draft_kv);
    printf("%-22s%" PRIu64 " reused, %" PRIu64 " computed; %" PRIu64 " reused by the draft\n",
           "prompt tokens", load->prompt_tokens_reused, load->prompt_tokens_computed,
           load->draft_prompt_tokens_reused);
    printf("%-22s%" PRIu64 "\n", "preemptions", load->preemptions);
    printf("%-22s%" PRIu64 "\n", "steps", load->steps);
    print_ends(load);
}

static json_t *count_json(uint64_t count)
{
    return json_integer((json_int_t)(count < INT64_MAX ? count : INT64_MAX));
}

static json_t *blocks_json(const struct kv_blocks *kv)
{
    return json_pack("{si si si}", "in_use", kv->in_use, "free", kv->free, "cached", kv->cached);
}

static json_t *load_json(const struct service_load *load)
{
    json_t *ends = json_object();
    for (int i = 0; i < JOB_ENDS; i++) {
        json_object_set_new(ends, job_end_names[i], count_json(load->ends[i]));
    }
    return json_pack("{si si si so so so so so so so so so}", "sequences_max", load->sequences_max,
                     "running", load->running, "waiting", load->waiting, "target_kv",
                     blocks_json(&load->target_kv), "draft_kv", blocks_json(&load->draft_kv),
                     "prompt_tokens_reused", count_json(load->prompt_tokens_reused),
                     "prompt_tokens_computed", count_json(load->prompt_tokens_computed),
                     "preemptions", count_json(load->preemptions), "ends", ends, "uptime_us",
                     count_json(load->uptime_us), "steps", count_json(load->steps),
                     "draft_prompt_tokens_reused", count_json(load->draft_prompt_tokens_reused));
}

/* Where there is one group, the lines above say all of it. */
static void print_groups(const struct service_description *s)
{
    if (s->n_groups < 2) return;
    for (int i = 0; i < s->n_groups; i++) {
        const struct service_group *group = &s->groups[i];
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "group %d", i);
        terminal_row(name, group->state);
        if (group->n_addresses == 0) continue;
        printf("%-22s%d rank%s, first at %s; %d of at most %d sequences running, %d waiting\n", "",
               group->n_addresses, group->n_addresses == 1 ? "" : "s", group->addresses[0],
               group->running, group->places, group->waiting);
    }
}

/* Groups of which no calibration is left to do. */
static void print_measured(const struct service_description *s)
{
    int n = 0;
    for (int i = 0; i < s->n_groups; i++) {
        n += s->groups[i].is_measured ? 1 : 0;
    }
    printf("%-22s%d of %d groups\n", "calibrated", n, s->n_groups);
}

static void print_draft(const struct service_description *s)
{
    char named[512];
    const char *model = s->draft_model[0] ? s->draft_model : "none";
    snprintf(named, sizeof named, "%s, a head (%s)", model, s->draft_kind);
    terminal_row("draft model", s->draft_kind[0] ? named : model);
}

static void print_table(const struct service_description *s)
{
    terminal_row("state", s->state);
    terminal_row("version", s->version);
    terminal_row("target model", s->target_model);
    terminal_row("architecture", s->target_architecture);
    terminal_row("arithmetic", s->arithmetic);
    printf("%-22s%016" PRIx64 "\n", "model fingerprint", s->model_fingerprint);
    printf("%-22s%016" PRIx64 "\n", "tokenizer fingerprint", s->tokenizer_fingerprint);
    terminal_row_number("ranks", s->n_ranks);
    terminal_row_number("slices", s->n_slices);
    terminal_row_number("vocabulary", s->vocab_size);
    terminal_row_number("context", s->context_limit);
    terminal_row_number("KV blocks", s->n_kv_blocks);
    print_draft(s);
    terminal_row_number("draft tokens (K)", s->default_n_draft);
    terminal_row("strategy", strategy_names[s->default_strategy]);
    terminal_row_number("draft support", s->draft_support);
    terminal_row_number("queue", s->queue_capacity);
    print_measured(s);
    print_estimates(&s->estimates);
    print_load(s);
    print_groups(s);
    for (int i = 0; i < s->n_addresses; i++) {
        terminal_row(i ? "" : "workers", s->addresses[i]);
    }
    for (int i = 0; i < s->n_kernels; i++) {
        terminal_row(i ? "" : "kernels of the ranks", s->kernels[i]);
    }
    if (s->draft_kernels[0]) terminal_row("kernels of the draft", s->draft_kernels);
}

static json_t *hex(uint64_t value)
{
    char text[HEX_BYTES];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *words_json(const char *const *words, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(list, json_string(words[i]));
    }
    return list;
}

static json_t *groups_json(const struct service_description *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n_groups; i++) {
        const struct service_group *group = &s->groups[i];
        json_array_append_new(
            list, json_pack("{ss so ss si si si sb}", "state", group->state, "worker_addresses",
                            words_json(group->addresses, group->n_addresses), "kernels",
                            group->kernels, "running", group->running, "waiting", group->waiting,
                            "places", group->places, "measured", group->is_measured));
    }
    return list;
}

static json_t *describe_json(const struct service_description *s)
{
    return json_pack(
        "{ss ss ss ss ss so so si si si si si ss si si si so ss so so ss so so ss}", "state",
        s->state, "version", s->version, "target_model", s->target_model, "target_architecture",
        s->target_architecture, "arithmetic", s->arithmetic, "model_fingerprint",
        hex(s->model_fingerprint), "tokenizer_fingerprint", hex(s->tokenizer_fingerprint),
        "n_ranks", s->n_ranks, "n_slices", s->n_slices, "vocab_size", s->vocab_size,
        "context_limit", s->context_limit, "n_kv_blocks", s->n_kv_blocks, "draft_model",
        s->draft_model, "default_n_draft", s->default_n_draft, "draft_support", s->draft_support,
        "queue_capacity", s->queue_capacity, "worker_addresses",
        words_json(s->addresses, s->n_addresses), "default_strategy",
        strategy_names[s->default_strategy], "planner", estimates_json(&s->estimates), "kernels",
        words_json(s->kernels, s->n_kernels), "draft_kernels", s->draft_kernels, "load",
        load_json(&s->load), "groups", groups_json(s), "draft_kind", s->draft_kind);
}

static int run(struct describe *d, struct error *err)
{
    struct service_description desc;
    int rc = 0;
    if (d->model) return describe_model(d->model, d->is_json, err);
    TRY(server_open(&d->server, &d->connection, 0, err));
    TRY(server_describe(&d->server, &desc, err));
    if (d->is_json) return client_print_json(describe_json(&desc), err);
    print_table(&desc);
    rc = client_flush(err);
out:
    return rc;
}

int describe_main(int argc, char **argv)
{
    struct describe d = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&d, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&d, &err)) {
        if (!d.model) server_explain(&d.server, &err);
        status = client_fail(&err);
    }
    server_close(&d.server);
    connection_close(&d.connection);
    return status;
}
