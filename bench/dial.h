/* How a bench reaches a server by a plain connection. */
#pragma once

#include "base/error.h"

/* Connects to HOST:PORT; the caller closes *fd. Errors: ERR_ARGUMENT it is no such address, ERR_IO
 * nobody is there. */
int dial(const char *address, int *fd, struct error *err);
