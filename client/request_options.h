/* Values of options of requests that change which tokens may come: what edit_options.c reads. Their
 * fields are a struct generate_options. */
#pragma once

#include "client/generate_options.h"

option_read edit_add_stop, edit_add_stop_id, edit_add_bias, edit_add_ban_ids;
