/* How long the coordinator waits for a step. */
#include "coordinator/target/step_watch.h"

enum { STEP_LEAST_US = 1000 };

void step_watch_init(struct step_watch *watch, int64_t most_us)
{
    *watch = (struct step_watch){0};
    step_limit_init(&watch->limit, most_us);
}

/* The rows of a step that only asks for further values cost less than those of a step that computes
 * them. */
static struct step_work work_of(const struct step *step)
{
    struct step_work work = step_work_of(step);
    for (int i = 0; i < step->n_more; i++) {
        work.n += step->more[i].n_rows;
    }
    return work;
}

static int64_t bytes_of_rows(const struct step_row *rows, int n, const struct target_description *d)
{
    int64_t n_bytes = 0;
    for (int i = 0; i < n; i++) {
        const struct row_wish *wish = &rows[i].wish;
        int64_t n_best = (int64_t)wish->n_best * d->n_slices;
        if (n_best > d->vocab_size) n_best = d->vocab_size;
        n_bytes += wish->full ? 4 * (int64_t)d->vocab_size : 8 * n_best + 4 * (int64_t)wish->n_ids;
    }
    return n_bytes;
}

/* Returns the bytes of logits and features in the answers of all ranks, at most. Rows cost about
 * the same whatever is asked of them, but a whole vocabulary of each takes its time on the way. */
static int64_t bytes_of(const struct step *step, const struct target_description *d)
{
    int64_t n_bytes = 0;
    for (int i = 0; i < step->n_lanes; i++) {
        n_bytes += bytes_of_rows(step->lanes[i].rows, step->lanes[i].n_rows, d);
        n_bytes += (int64_t)features_bytes(&step->features, d->dim, step->lanes[i].n_features);
    }
    for (int i = 0; i < step->n_more; i++) {
        n_bytes += bytes_of_rows(step->more[i].rows, step->more[i].n_rows, d);
    }
    return n_bytes;
}

void step_watch_begin(struct step_watch *watch, const struct step *step,
                      const struct target_description *d, int64_t now_us)
{
    watch->work = work_of(step);
    int64_t way_us = bytes_of(step, d) / STEP_BYTES_PER_US;
    watch->expected_us = step_limit_expected_us(&watch->limit, &watch->work);
    bool is_known = watch->expected_us >= 0;
    watch->overdue_us = is_known ? watch->expected_us + way_us + STEP_OVERDUE_US : INT64_MAX;
    watch->limit_us = is_known ? step_limit_us(&watch->limit, &watch->work) + way_us : INT64_MAX;
    watch->waited_us = 0;
    watch->seen_us = now_us;
}

void step_watch_look(struct step_watch *watch, int64_t now_us)
{
    int64_t since_us = now_us - watch->seen_us;
    watch->waited_us += since_us < STEP_SEEN_US ? since_us : STEP_SEEN_US;
    watch->seen_us = now_us;
}

bool step_watch_is_overdue(const struct step_watch *watch)
{
    return watch->waited_us > watch->overdue_us;
}

bool step_watch_is_over(const struct step_watch *watch)
{
    return watch->waited_us > watch->limit_us;
}

/* A pause of seconds says little of steps, and 20 times that would be a limit of a minute. Where
 * steps have become slower for good, the limit follows within a few of them. */
void step_watch_end(struct step_watch *watch, int64_t took_us)
{
    if (took_us > watch->overdue_us) {
        int64_t most_us = 2 * watch->expected_us + STEP_LEAST_US;
        if (took_us > most_us) took_us = most_us;
    }
    step_limit_observe(&watch->limit, &watch->work, took_us);
}
