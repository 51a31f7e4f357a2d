#include "coordinator/job/reader.h"

/* Bytes that are left when a slow client has caught up. */
enum { REST_BYTES = 64 << 10 };

int64_t reader_look(struct reader *reader, struct reader_progress progress, int64_t now_us)
{
    size_t most = reader->slow_us ? REST_BYTES : READER_BYTES;
    if (progress.n_waiting <= most) {
        reader->slow_us = 0;
        return 0;
    }
    if (!reader->slow_us || progress.n_read != reader->n_read) reader->read_us = now_us;
    if (!reader->slow_us) reader->slow_us = now_us;
    reader->n_read = progress.n_read;
    return now_us - reader->read_us;
}
