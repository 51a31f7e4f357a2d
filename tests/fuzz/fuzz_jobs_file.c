/* The lines of a file of requests (outrider jobs submit) on any bytes. What is read must be encoded
 * or refused with a sentence, and a key must fit into a message. */
/* ctest: libs=client */
#include <stdlib.h>
#include <string.h>

#include "client/jobs/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void try_line(const struct jobs_line *line)
{
    static struct buffer buf;
    struct jobs_entry entry;
    struct error err = {0};
    if (jobs_entry_read(&entry, line, "fuzz", &err)) {
        if (!strstr(err.text, "line ") && err.code != ERR_NO_MEMORY) abort();
        return;
    }
    if (!entry.key[0] || strlen(entry.key) >= JOB_KEY_BYTES) abort();
    const struct submit_request request = {.request = entry.request, .key = entry.key};
    if (submit_request_encode(&buf, &request, &err) && !err.text[0]) abort();
    jobs_entry_free(&entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct jobs_line *lines;
    struct error err;
    int n;
    if (jobs_lines(&lines, &n, (const char *)data, len, &err)) abort();
    for (int i = 0; i < n; i++) {
        if (lines[i].text + lines[i].len > (const char *)data + len) abort();
        try_line(&lines[i]);
    }
    free(lines);
    return 0;
}
