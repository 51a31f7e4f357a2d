/* The served model as the doors describe it: written by the engine's thread when a group comes or
 * goes, read by any thread. Locked inside. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/threads/monitor.h"
#include "coordinator/job/groups.h"
#include "proto/target_wire.h"

enum { SERVED_NAME_BYTES = 256, SERVED_FINGERPRINT_BYTES = 96 };

struct served_model_info {
    bool is_serving;              /* requests are taken */
    bool is_ready;                /* and, as far as can be seen, served in time */
    char why[ERROR_TEXT_BYTES];   /* it does not serve, or is not ready */
    char name[SERVED_NAME_BYTES]; /* "" = there has been no group yet, and no option gives one */
    char fingerprint[SERVED_FINGERPRINT_BYTES]; /* model and arithmetic, for system_fingerprint */
    int context_limit; /* tokens of a text; 0 = there has been no group yet */
    int64_t since_s;   /* of 1970: when this model came */
};

struct served_model {
    struct monitor monitor;
    struct served_model_info info;
    const char *option_name; /* of --served-name; NULL = as the group says */
};

/* keeps option_name */
void served_model_open(struct served_model *model, const char *option_name);
void served_model_close(struct served_model *model);

/* group: that serves, or that served last. */
void served_model_set(struct served_model *model, enum groups_service service, const char *why,
                      const struct target_description *group);
void served_model_get(struct served_model *model, struct served_model_info *info);
