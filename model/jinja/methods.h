/* The methods of texts, for the tables of methods.c. */
#pragma once

#include "model/jinja/library.h"

extern const struct builtin methods_of_text[];
extern const int n_methods_of_text;
