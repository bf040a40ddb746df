/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that clients send (serve/api_request.h): each is read, as a completion and as a chat, or refused with a
 * reason; what was read keeps what its fields promise. */
#include <stdint.h>
#include <stdlib.h>

#include "serve/api_request.h"

enum { VOCAB = 200, ROOM = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t = tokenizer_new_byte();
    const struct api_limits limits = {.max_tokens = 32, .room = ROOM, .vocab = VOCAB, .model = "m"};
    for (int chat = 0; chat < 2; chat++) {
        struct api_request r;
        struct err e = {0};
        int status = 0;
        if (api_request_read(&r, chat, (const char *)data, size, t, NULL, &limits, &status, &e)) {
            if (e.code != ERR_REQUEST || !e.text[0] || status < 400 || status > 499) abort();
            continue;
        }
        if (r.n < 1 || r.n > API_CHOICES || r.n_prompts < 1 || r.n_prompts > API_PROMPTS) abort();
        if (r.max_tokens < 0 || r.max_tokens > 32 || r.logprobs < -1 || r.logprobs > ANSWER_TOP) abort();
        for (int i = 0; i < r.n_prompts; i++) {
            if (r.prompt[i].n < 1 || r.prompt[i].n > ROOM) abort();
            for (int64_t k = 0; k < r.prompt[i].n; k++)
                if (r.prompt[i].ids[k] < 0 || r.prompt[i].ids[k] >= VOCAB) abort();
        }
        api_request_fini(&r);
    }
    tokenizer_free(t);
    return 0;
}
