/* Addresses where programs are going to listen. */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* Sees that the address, HOST:PORT or unix:PATH, can be listened at. advice: what to give instead,
 * such as "--port". Errors: ERR_ARGUMENT, ERR_IO. */
int door_check_free(const char *address, const char *advice, struct error *err);

/* Writes the address that a browser on this machine opens: of "0.0.0.0:8000" "127.0.0.1:8000".
 * Returns out. */
const char *door_to_open(const char *address, char *out, size_t size);
