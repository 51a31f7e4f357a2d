/* The page for browsers: a playground, a chat, two runs side by side and live figures. Its files
 * are part of the binary, it asks for nothing from elsewhere, and it uses the API as any client
 * does. */
#pragma once

#include <stdbool.h>

struct http_exchange;

/* Answers a GET of / or of one of the page's files, /page/NAME. false: the page has no such
 * file. */
bool page_answer(struct http_exchange *x);
