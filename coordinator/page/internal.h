/* The files of the page, which cmake/embed.cmake puts into the binary. */
#pragma once

#include <stddef.h>

struct page_bytes {
    const unsigned char *data;
    size_t len;
};

struct page_file {
    const char *name; /* "index.html" */
    const char *tag;  /* changes with the bytes */
    struct page_bytes plain, gzip;
};

extern const struct page_file page_files[];
extern const size_t n_page_files;
