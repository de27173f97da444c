/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_spec.c - any bytes as a spec, for libFuzzer. What parses must print, and the print must be a
 * fixed point.
 */
#include <reshard/spec.h>

#include "tests/support/info.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The canonical text, to be freed. */
static char *print(const reshard_spec *spec)
{
    size_t length = 0;
    if (reshard_spec_text(spec, NULL, 0, &length) != RESHARD_OK)
        abort();
    char *text = malloc(length + 1);
    if (text == NULL || reshard_spec_text(spec, text, length + 1, &length) != RESHARD_OK)
        abort();
    return text;
}

static void check_round_trip(const reshard_spec *spec)
{
    reshard_spec *again = NULL;
    char *text = print(spec);
    if (reshard_spec_parse(NULL, text, &again) != RESHARD_OK)
        abort();
    char *text_again = print(again);
    if (strcmp(text, text_again) != 0)
        abort();
    reshard_spec_release(again);
    free(text_again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Short texts can name millions of ranks; the limit keeps the fuzzer fast. */
    reshard_context_options options = {.size = sizeof options, .memory_bytes_max = (size_t)1 << 22};
    reshard_context *context = NULL;
    reshard_spec *spec = NULL;
    if (reshard_context_create(&options, &context) != RESHARD_OK)
        abort();
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (reshard_spec_parse(context, text, &spec) == RESHARD_OK)
        check_round_trip(spec);
    else if (reshard_error_text()[0] == '\0')
        abort();
    reshard_spec_release(spec);
    free(text);
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    return 0;
}
