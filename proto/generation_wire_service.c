/* The description of the service. */
#include "base/limits.h"
#include "proto/generation_wire.h"

#include "proto/codec.h"
#include "proto/generation.pb-c.h"
#include "proto/generation_wire_estimates.h"
#include "proto/generation_wire_parts.h"

enum { SERVICE_TEXT_BYTES_MAX = 4096, SERVICE_LIST_MAX = 1024, SERVICE_WORD_BYTES_MAX = 512 };

static Outrider__Generation__V1__Group *group_make(struct arena *scratch,
                                                   const struct service_group *group)
{
    Outrider__Generation__V1__Group *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__group__init(out);
    out->state = codec_copy_string(scratch, group->state);
    out->n_worker_addresses = (size_t)group->n_addresses;
    out->worker_addresses = codec_copy_strings(scratch, group->addresses, group->n_addresses);
    out->kernels = codec_copy_string(scratch, group->kernels);
    out->running = (uint32_t)group->running;
    out->waiting = (uint32_t)group->waiting;
    out->places = (uint32_t)group->places;
    out->measured = group->is_measured;
    return out->state && out->worker_addresses && out->kernels ? out : NULL;
}

static Outrider__Generation__V1__Group **groups_make(struct arena *scratch,
                                                     const struct service_description *desc)
{
    size_t n = (size_t)desc->n_groups;
    Outrider__Generation__V1__Group **out = arena_take(scratch, n, sizeof *out);
    for (size_t i = 0; out && i < n; i++) {
        out[i] = group_make(scratch, &desc->groups[i]);
        if (!out[i]) return NULL;
    }
    return out;
}

static const ProtobufCMessage *service_build(struct arena *scratch, const void *value)
{
    const struct service_description *desc = value;
    Outrider__Generation__V1__Description *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__description__init(out);
    out->version = codec_copy_string(scratch, desc->version);
    out->target_model = codec_copy_string(scratch, desc->target_model);
    out->target_architecture = codec_copy_string(scratch, desc->target_architecture);
    out->n_ranks = (uint32_t)desc->n_ranks;
    out->n_slices = (uint32_t)desc->n_slices;
    out->arithmetic = codec_copy_string(scratch, desc->arithmetic);
    out->model_fingerprint = desc->model_fingerprint;
    out->tokenizer_fingerprint = desc->tokenizer_fingerprint;
    out->vocab_size = (uint32_t)desc->vocab_size;
    out->context_limit = (uint32_t)desc->context_limit;
    out->draft_model = codec_copy_string(scratch, desc->draft_model);
    out->draft_kind = codec_copy_string(scratch, desc->draft_kind ? desc->draft_kind : "");
    out->default_n_draft = (uint32_t)desc->default_n_draft;
    out->draft_support = (uint32_t)desc->draft_support;
    out->state = codec_copy_string(scratch, desc->state);
    out->n_worker_addresses = (size_t)desc->n_addresses;
    out->worker_addresses = codec_copy_strings(scratch, desc->addresses, desc->n_addresses);
    out->n_kv_blocks = (uint32_t)desc->n_kv_blocks;
    out->queue_capacity = (uint32_t)desc->queue_capacity;
    out->default_strategy = (Outrider__Generation__V1__Strategy)desc->default_strategy;
    out->estimates = estimates_make(scratch, &desc->estimates);
    out->n_kernels = (size_t)desc->n_kernels;
    out->kernels = codec_copy_strings(scratch, desc->kernels, desc->n_kernels);
    out->chat = desc->has_chat;
    out->draft_kernels = codec_copy_string(scratch, desc->draft_kernels);
    out->load = load_make(scratch, &desc->load);
    out->n_groups = (size_t)desc->n_groups;
    out->groups = groups_make(scratch, desc);
    out->times = times_make(scratch, &desc->times);
    bool is_whole = out->version && out->target_model && out->target_architecture &&
                    out->arithmetic && out->draft_model && out->draft_kind && out->state &&
                    out->worker_addresses && out->estimates && out->kernels && out->draft_kernels &&
                    out->load && out->groups && out->times;
    return is_whole ? &out->base : NULL;
}

int service_description_encode(struct buffer *buf, const struct service_description *desc,
                               struct error *err)
{
    return codec_encode(buf, service_build, desc, err);
}

static int service_texts_decode(const Outrider__Generation__V1__Description *msg,
                                struct service_description *desc, struct error *err)
{
    const struct {
        const char **out;
        const char *text, *field;
    } texts[] = {{&desc->version, msg->version, "version"},
                 {&desc->target_model, msg->target_model, "target_model"},
                 {&desc->target_architecture, msg->target_architecture, "target_architecture"},
                 {&desc->arithmetic, msg->arithmetic, "arithmetic"},
                 {&desc->draft_model, msg->draft_model, "draft_model"},
                 {&desc->draft_kind, msg->draft_kind, "draft_kind"},
                 {&desc->draft_kernels, msg->draft_kernels, "draft_kernels"},
                 {&desc->state, msg->state, "state"}};
    int rc = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !rc; i++) {
        rc = codec_read_string(texts[i].out, NULL, texts[i].text, SERVICE_TEXT_BYTES_MAX,
                               texts[i].field, err);
    }
    return rc;
}

static int service_numbers_decode(const Outrider__Generation__V1__Description *msg,
                                  struct service_description *desc, struct error *err)
{
    int rc = 0;
    TRY(codec_read_int(&desc->n_ranks, msg->n_ranks, 0, INT32_MAX, "n_ranks", err));
    TRY(codec_read_int(&desc->n_slices, msg->n_slices, 0, SLICES_MAX, "n_slices", err));
    TRY(codec_read_int(&desc->vocab_size, msg->vocab_size, 0, INT32_MAX, "vocab_size", err));
    TRY(codec_read_int(&desc->context_limit, msg->context_limit, 0, INT32_MAX, "context_limit",
                       err));
    TRY(codec_read_int(&desc->default_n_draft, msg->default_n_draft, 0, DRAFT_MAX,
                       "default_n_draft", err));
    TRY(codec_read_int(&desc->draft_support, msg->draft_support, 0, INT32_MAX, "draft_support",
                       err));
    TRY(codec_read_int(&desc->n_kv_blocks, msg->n_kv_blocks, 0, INT32_MAX, "n_kv_blocks", err));
    TRY(codec_read_int(&desc->queue_capacity, msg->queue_capacity, 0, INT32_MAX, "queue_capacity",
                       err));
    TRY(strategy_decode(&desc->default_strategy, (int)msg->default_strategy, err));
    TRY(estimates_decode(msg->estimates, &desc->estimates, err));
    TRY(load_decode(msg->load, &desc->load, err));
    TRY(times_decode(msg->times, &desc->times, err));
    desc->model_fingerprint = msg->model_fingerprint;
    desc->tokenizer_fingerprint = msg->tokenizer_fingerprint;
    desc->has_chat = msg->chat;
out:
    return rc;
}

/* Where a list of short strings goes, and what it is called. */
struct word_list {
    const char *const **out;
    int *n;
    const char *field;
};

static int words_decode(char *const *words, size_t n_words, struct arena *arena,
                        const struct word_list *list, struct error *err)
{
    int rc = codec_read_count(list->n, n_words, SERVICE_LIST_MAX, list->field, err);
    if (rc) return rc;
    const char **out = codec_take(arena, n_words, sizeof *out, err);
    if (!out) return err->code;
    *list->out = out;
    for (int i = 0; i < *list->n && !rc; i++) {
        rc = codec_read_string(&out[i], NULL, words[i], SERVICE_WORD_BYTES_MAX, list->field, err);
    }
    return rc;
}

static int group_decode(const Outrider__Generation__V1__Group *msg, struct arena *arena,
                        struct service_group *group, struct error *err)
{
    int rc = 0;
    struct word_list list = {&group->addresses, &group->n_addresses, "groups.worker_addresses"};
    TRY(codec_read_string(&group->state, NULL, msg->state, SERVICE_TEXT_BYTES_MAX, "groups.state",
                          err));
    TRY(codec_read_string(&group->kernels, NULL, msg->kernels, SERVICE_WORD_BYTES_MAX,
                          "groups.kernels", err));
    TRY(words_decode(msg->worker_addresses, msg->n_worker_addresses, arena, &list, err));
    TRY(codec_read_int(&group->running, msg->running, 0, INT32_MAX, "groups.running", err));
    TRY(codec_read_int(&group->waiting, msg->waiting, 0, INT32_MAX, "groups.waiting", err));
    TRY(codec_read_int(&group->places, msg->places, 0, INT32_MAX, "groups.places", err));
    group->is_measured = msg->measured;
out:
    return rc;
}

static int groups_decode(const Outrider__Generation__V1__Description *msg, struct arena *arena,
                         struct service_description *desc, struct error *err)
{
    int rc = codec_read_count(&desc->n_groups, msg->n_groups, SERVICE_LIST_MAX, "groups", err);
    if (rc) return rc;
    struct service_group *groups = codec_take(arena, msg->n_groups, sizeof *groups, err);
    if (!groups) return err->code;
    for (int i = 0; i < desc->n_groups && !rc; i++) {
        rc = group_decode(msg->groups[i], arena, &groups[i], err);
    }
    desc->groups = groups;
    return rc;
}

int service_description_decode(const uint8_t *data, size_t len, struct arena *arena,
                               struct service_description *desc, struct error *err)
{
    int rc = 0;
    *desc = (struct service_description){0};
    const Outrider__Generation__V1__Description *msg =
        codec_unpack(&outrider__generation__v1__description__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    TRY(service_texts_decode(msg, desc, err));
    TRY(service_numbers_decode(msg, desc, err));
    struct word_list list = {&desc->addresses, &desc->n_addresses, "worker_addresses"};
    TRY(words_decode(msg->worker_addresses, msg->n_worker_addresses, arena, &list, err));
    list = (struct word_list){&desc->kernels, &desc->n_kernels, "kernels"};
    TRY(words_decode(msg->kernels, msg->n_kernels, arena, &list, err));
    TRY(groups_decode(msg, arena, desc, err));
out:
    if (rc) *desc = (struct service_description){0};
    return rc;
}
