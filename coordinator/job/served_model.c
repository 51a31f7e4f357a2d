/* A copy under a lock. */
#include "coordinator/job/served_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void served_model_open(struct served_model *model, const char *option_name)
{
    *model = (struct served_model){.option_name = option_name};
    snprintf(model->info.why, sizeof model->info.why, "the coordinator is starting");
    snprintf(model->info.name, sizeof model->info.name, "%s", option_name ? option_name : "");
    monitor_open(&model->monitor);
}

void served_model_close(struct served_model *model)
{
    monitor_close(&model->monitor);
}

/* Two answers with the same fingerprint come from the same weights by the same arithmetic. */
static void take_group(struct served_model *model, const struct target_description *group)
{
    struct served_model_info *info = &model->info;
    char fingerprint[SERVED_FINGERPRINT_BYTES];
    snprintf(fingerprint, sizeof fingerprint, "fp_%016" PRIx64 "_%.60s", group->model_fingerprint,
             group->arithmetic);
    if (strcmp(fingerprint, info->fingerprint) == 0) return;
    memcpy(info->fingerprint, fingerprint, sizeof fingerprint);
    info->context_limit = group->context_limit;
    info->since_s = (int64_t)time(NULL);
    if (!model->option_name) snprintf(info->name, sizeof info->name, "%s", group->model);
}

void served_model_set(struct served_model *model, enum groups_service service, const char *why,
                      const struct target_description *group)
{
    monitor_enter(&model->monitor);
    model->info.is_serving = service != GROUPS_ABSENT;
    model->info.is_ready = service == GROUPS_SERVING;
    snprintf(model->info.why, sizeof model->info.why, "%s", why);
    if (model->info.is_serving) take_group(model, group);
    monitor_leave(&model->monitor);
}

void served_model_get(struct served_model *model, struct served_model_info *info)
{
    monitor_enter(&model->monitor);
    *info = model->info;
    monitor_leave(&model->monitor);
}
