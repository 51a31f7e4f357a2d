/* ctest: libs=tokenizer */
/* Any bytes as tokenizer.json. What opens must encode a fixed text and part of the input, and
 * decode ids, without a fault; whatever comes out as text must end on whole characters. */
#include "tests/support/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *tok;
    struct error err;
    if (tokenizer_parse(&tok, (const char *)data, size, NULL, 0, "fuzz", &err)) return 0;
    fuzz_tokenizer(tok, data, size);
    return 0;
}
