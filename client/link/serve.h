/* The side of `outrider link` that others measure. */
#pragma once

#include "base/error.h"

/* Answers at address until `seconds` have passed (0: until the process is ended), and prints the
 * address with its true port first. A connection is a thread.
 * Errors: those of link_listen; ERR_IO the line cannot be printed. */
int link_serve(const char *address, int seconds, struct error *err);
