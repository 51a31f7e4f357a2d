#include "base/packer.h"

#include <stdalign.h>
#include <string.h>

static const size_t alignment = alignof(max_align_t);

void *packer_array(struct packer *p, const void *data, size_t n, size_t size)
{
    if (!n) return NULL;
    size_t begin = (p->n_bytes + alignment - 1) / alignment * alignment;
    p->n_bytes = begin + n * size;
    return p->block ? memcpy(p->block + begin, data, n * size) : NULL;
}

char *packer_text(struct packer *p, const char *text, size_t len)
{
    static char empty[1];
    char *copy = p->block && len ? (char *)p->block + p->n_bytes : empty;
    if (!len) return copy;
    p->n_bytes += len + 1;
    if (!p->block) return copy;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

const char *packer_string(struct packer *p, const char *text)
{
    return packer_text(p, text, text ? strlen(text) : 0);
}

const char *const *packer_strings(struct packer *p, const char *const *strings, int n)
{
    const char **list = packer_array(p, strings, (size_t)n, sizeof *list);
    for (int i = 0; i < n; i++) {
        const char *text = packer_string(p, strings[i]);
        if (list) list[i] = text;
    }
    return list;
}
