/* Finds the site whose page a browser sends a request for. Where there are no keys, everybody who
 * can connect may call, and a browser connects for every page that somebody opens: also for one
 * that sends a form to this machine, or whose name its owner lets mean this machine (DNS
 * rebinding). */
#pragma once

#include "coordinator/openai/options.h"

/* Returns true if the request is, or may be, one of a page that this server did not send; why[size]
 * is a sentence on it. For the network thread. */
bool openai_site_is_foreign(const struct openai_options *options, const struct http_exchange *x,
                            char *why, size_t size);

/* A browser asks before it sends a request to another origin than its page's. Sets the headers that
 * let the pages of --cors read an answer; true: it only asked, and this was the answer. Of the
 * network thread. */
bool openai_site_answer_preflight(const struct openai_options *options, struct http_exchange *x);
