/* The HTTP door of the coordinator: OpenAI's API and what servers of models have beside it. A
 * request is routed on the network thread of http/; what takes time is done by the intake
 * (coordinator/job/intake.h), and the engine's answer leaves through coordinator/openai/answer.h.
 * */
#pragma once

#include "coordinator/openai/options.h"

struct openai_api;

/* Errors: those of http_server_open. */
int openai_open(struct openai_api **api, const struct openai_options *options, struct error *err);
/* Waits up to grace_ms for answers under way. Jobs that are left can only be freed after this.
 * Accepts NULL. */
void openai_close(struct openai_api *api, int grace_ms);

const char *openai_address(const struct openai_api *api);
