/* The way of an HTTP body to a job, but for the server that brings it: any bytes as the body of
 * /v1/completions or, with the lowest bit of the first byte, of /v1/chat/completions. What is
 * accepted becomes a job that waits, and what is refused is refused with a sentence. */
/* ctest: libs=coordinator */
#include <stdlib.h>
#include <string.h>

#include "coordinator/job/admission.h"
#include "coordinator/openai/body.h"
#include "coordinator/openai/request/request.h"

enum { N_VOCAB = 300, BUDGET_BYTES = 64 << 20, PROMPT_BYTES_MAX = 4096, ARENA_BYTES = 4 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct budget budget;
static struct admission admission;
static struct arena arena;

static void open_all(void)
{
    struct error err;
    struct tokenizer *tok;
    if (admission.tok) return;
    budget_init(&budget, BUDGET_BYTES, "--queue-bytes");
    if (tokenizer_open_bytes(&tok, N_VOCAB, &err) || arena_open(&arena, ARENA_BYTES, &err)) abort();
    admission.tok = tok;
    admission.max_prompt_bytes = PROMPT_BYTES_MAX;
    atomic_init(&admission.n_vocab, N_VOCAB);
}

static int fill(const struct openai_request *request, int i, struct error *err)
{
    struct job *job;
    struct generate_request generate = request->generate;
    const struct openai_prompt *prompt = &request->prompts[i];
    generate.prompt = prompt->text;
    generate.prompt_len = prompt->len;
    generate.prompt_ids = prompt->ids;
    generate.n_prompt_ids = prompt->n_ids;
    int rc = job_open(&job, JOB_GENERATE, err);
    if (rc) abort();
    rc = admission_fill_generate(&admission, job, &generate, err);
    if (!rc) rc = job_charge(job, &budget, err);
    job_free(job);
    return rc;
}

static int read_body(const struct openai_body *body, enum openai_kind kind, struct error *err)
{
    static const struct openai_limits limits = {.model = "target", .n_stop = 4, .n = 64};
    struct openai_error wrong = {0};
    struct openai_request request;
    struct openai_reading reading = {
        .root = body->root, .arena = &arena, .wrong = &wrong, .err = err};
    int rc = openai_request_read(&request, kind, &limits, &reading);
    if (!rc) rc = openai_request_check(&request, &reading);
    for (int i = 0; i < request.n_prompts && !rc; i++) {
        rc = fill(&request, i, err);
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct error err = {0};
    struct openai_body body = {0};
    open_all();
    if (!len) return 0;
    arena_reset(&arena);
    int rc = openai_body_parse(&body, (const char *)data + 1, len - 1, &budget, &err);
    if (!rc) rc = read_body(&body, data[0] & 1 ? OPENAI_CHAT : OPENAI_COMPLETION, &err);
    openai_body_free(&body);
    if (rc != 0 && (err.code != rc || !err.text[0])) abort();
    if (budget_used(&budget) != 0) abort();
    return 0;
}
