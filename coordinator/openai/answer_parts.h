/* The inside of an answer, for coordinator/openai/answer*.c alone: answer_streams.c has the streams
 * and who holds the answer, answer_text.c what messages become. */
#pragma once

#include <stdatomic.h>

#include "base/budget.h"
#include "base/threads/monitor.h"
#include "coordinator/openai/answer.h"
#include "coordinator/openai/logprobs.h"
#include "coordinator/openai/shape.h"

enum { OPENAI_REASON_BYTES = 16 };

/* One text of the answer. */
struct openai_choice {
    struct buffer text; /* not for streams */
    uint64_t n_bytes;   /* of the text that has come, without the prompt */
    struct openai_logprobs logprobs;
    struct buffer origins; /* of each token a byte, where the whole answer tells of them */
    bool has_begun;        /* a stream's first chunk has left */
    char finish_reason[OPENAI_REASON_BYTES]; /* "" = it goes on */
    json_t *outrider;                        /* what the whole answer tells of it; NULL = nothing */
};

/* One job of the answer. */
struct openai_part {
    struct response_stream base;
    struct openai_answer *answer;
    int number;
    struct buffer echo; /* the prompt's text, until it has left; one for all of the job's texts */
    struct openai_logprobs echo_logprobs;
};

struct openai_answer {
    struct response_stream base; /* of the request as a whole */
    struct http_exchange *x;
    const struct tokenizer *tok;
    struct budget *budget; /* what the answer keeps is charged to */
    struct openai_names names;
    bool scores_only, tells_outrider, wants_logprobs, has_prediction;
    int n; /* texts of a job */

    /* These are read by the engine thread, which must not wait for a thread that formats. */
    atomic_bool is_over;   /* it has been answered, or refused */
    atomic_bool is_large;  /* something of it takes long to format */
    atomic_size_t n_bytes; /* kept, of texts, log-probabilities and chunks */

    struct monitor monitor; /* of what follows */
    struct openai_shape shape;
    struct openai_error wrong;
    struct openai_usage usage;
    int n_left;     /* jobs that have not ended */
    bool has_begun; /* the first chunk of a stream has left */
    size_t charged_bytes;
    int n_parts, n_choices;
    struct openai_part *parts;
    struct openai_choice *choices;
    struct buffer out; /* a chunk in the making */
};

/* Inside the monitor. A message of the part's job. Errors: ERR_CANCELLED the answer is over,
 * ERR_EXHAUSTED it would occupy too much, ERR_NO_MEMORY. */
int openai_answer_take(struct openai_part *part, const struct answer_message *message,
                       struct error *err);
/* Inside the monitor. The part's job has ended well; with the last one, the answer. */
void openai_answer_end(struct openai_part *part);
/* Inside the monitor. Ends the answer with an error, unless it is over. */
void openai_answer_refuse(struct openai_answer *answer, int code, const char *text);
