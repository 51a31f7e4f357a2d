/* How busy the service is, and how many jobs have ended in which way. */
#include "proto/generation_wire.h"

#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

/* On the wire 0 means that a job has not ended. */
_Static_assert(JOB_END_STOP + 1 == (int)OUTRIDER__GENERATION__V1__JOB_END__END_STOP &&
                   JOB_END_SHUTDOWN + 1 == (int)OUTRIDER__GENERATION__V1__JOB_END__END_SHUTDOWN &&
                   JOB_ENDS == (int)OUTRIDER__GENERATION__V1__JOB_END__END_SHUTDOWN,
               "ends are numbered as in generation.proto");

int job_end_decode(enum job_end *end, int value, struct error *err)
{
    if (value < 1 || value > JOB_ENDS) {
        return error_set(err, ERR_FORMAT, "end is %d, must be 1 to %d", value, JOB_ENDS);
    }
    *end = (enum job_end)(value - 1);
    return 0;
}

static Outrider__Generation__V1__KvBlocks *blocks_make(struct arena *scratch,
                                                       const struct kv_blocks *blocks)
{
    Outrider__Generation__V1__KvBlocks *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__kv_blocks__init(out);
    out->in_use = (uint32_t)blocks->in_use;
    out->free = (uint32_t)blocks->free;
    out->cached = (uint32_t)blocks->cached;
    return out;
}

/* Ends that have not happened are left out. */
static bool ends_make(Outrider__Generation__V1__Load *out, struct arena *scratch,
                      const struct service_load *load)
{
    Outrider__Generation__V1__EndCount **list = arena_take(scratch, JOB_ENDS, sizeof *list);
    Outrider__Generation__V1__EndCount *items = arena_take(scratch, JOB_ENDS, sizeof *items);
    if (!list || !items) return false;
    size_t n = 0;
    for (int i = 0; i < JOB_ENDS; i++) {
        if (!load->ends[i]) continue;
        outrider__generation__v1__end_count__init(&items[n]);
        items[n].end = (Outrider__Generation__V1__JobEnd)(i + 1);
        items[n].jobs = load->ends[i];
        list[n] = &items[n];
        n++;
    }
    out->n_ends = n;
    out->ends = list;
    return true;
}

Outrider__Generation__V1__Load *load_make(struct arena *scratch, const struct service_load *load)
{
    Outrider__Generation__V1__Load *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__load__init(out);
    out->sequences_max = (uint32_t)load->sequences_max;
    out->running = (uint32_t)load->running;
    out->waiting = (uint32_t)load->waiting;
    out->target_kv = blocks_make(scratch, &load->target_kv);
    out->draft_kv = blocks_make(scratch, &load->draft_kv);
    out->prompt_tokens_reused = load->prompt_tokens_reused;
    out->prompt_tokens_computed = load->prompt_tokens_computed;
    out->preemptions = load->preemptions;
    out->uptime_us = load->uptime_us;
    out->steps = load->steps;
    out->draft_prompt_tokens_reused = load->draft_prompt_tokens_reused;
    return out->target_kv && out->draft_kv && ends_make(out, scratch, load) ? out : NULL;
}

static int blocks_decode(const Outrider__Generation__V1__KvBlocks *msg, struct kv_blocks *blocks,
                         struct error *err)
{
    int rc = 0;
    if (!msg) return 0;
    TRY(codec_read_int(&blocks->in_use, msg->in_use, 0, INT32_MAX, "in_use", err));
    TRY(codec_read_int(&blocks->free, msg->free, 0, INT32_MAX, "free", err));
    TRY(codec_read_int(&blocks->cached, msg->cached, 0, INT32_MAX, "cached", err));
out:
    return rc;
}

static int ends_decode(const Outrider__Generation__V1__Load *msg, struct service_load *load,
                       struct error *err)
{
    int n, rc = codec_read_count(&n, msg->n_ends, JOB_ENDS, "ends", err);
    for (int i = 0; i < n && !rc; i++) {
        enum job_end end = JOB_END_STOP;
        rc = job_end_decode(&end, (int)msg->ends[i]->end, err);
        if (!rc) load->ends[end] = msg->ends[i]->jobs;
    }
    return rc;
}

int load_decode(const Outrider__Generation__V1__Load *msg, struct service_load *load,
                struct error *err)
{
    int rc = 0;
    *load = (struct service_load){0};
    if (!msg) return 0;
    TRY(codec_read_int(&load->sequences_max, msg->sequences_max, 0, INT32_MAX, "sequences_max",
                       err));
    TRY(codec_read_int(&load->running, msg->running, 0, INT32_MAX, "running", err));
    TRY(codec_read_int(&load->waiting, msg->waiting, 0, INT32_MAX, "waiting", err));
    TRY(blocks_decode(msg->target_kv, &load->target_kv, err));
    TRY(blocks_decode(msg->draft_kv, &load->draft_kv, err));
    TRY(ends_decode(msg, load, err));
    load->prompt_tokens_reused = msg->prompt_tokens_reused;
    load->prompt_tokens_computed = msg->prompt_tokens_computed;
    load->preemptions = msg->preemptions;
    load->uptime_us = msg->uptime_us;
    load->steps = msg->steps;
    load->draft_prompt_tokens_reused = msg->draft_prompt_tokens_reused;
out:
    return rc;
}
