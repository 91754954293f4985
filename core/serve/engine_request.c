#include "core/serve/engine_request.h"

#include "core/base/mem.h"

#include <stdlib.h>

EngineRequest *request_new(int32_t *tokens, int prompt)
{
    EngineRequest *request = xcalloc(1, sizeof *request);
    request->tokens = tokens;
    request->capacity = prompt;
    request->seq.tokens = tokens;
    request->seq.prompt = request->seq.count = prompt;
    request->seq.match_limit = prompt;
    request->params = sampling_defaults();
    request->logprob_start = -1;
    request->synthetic_epoch = -1;
    text_init(&request->decoded, 16u << 20);
    request->skip_special = true;
    return request;
}

void request_free(EngineRequest *request)
{
    if (!request) {
        return;
    }
    free(request->seq.blocks);
    free(request->tokens);
    free(request->stop_ids);
    free(request->bias_ids);
    free(request->bias);
    for (int i = 0; i < request->stop_count; i++) {
        free(request->stops[i]);
    }
    penalty_free(&request->counts);
    free(request->logprobs);
    free(request->alts);
    free(request->input_logprobs);
    free(request->input_alts);
    free(request->spans);
    text_free(&request->decoded);
    free(request);
}

void request_reserve(EngineRequest *request)
{
    if (request->seq.count == request->capacity) {
        request->capacity += request->capacity / 2 + 64;
        request->tokens = xrealloc(request->tokens, (size_t)request->capacity,
                                   sizeof *request->tokens);
        request->seq.tokens = request->tokens;
    }
    int outputs = request_output_count(request);
    if (outputs < request->output_capacity) {
        return;
    }
    request->output_capacity += request->output_capacity / 2 + 64;
    request->logprobs = xrealloc(request->logprobs, (size_t)request->output_capacity,
                                 sizeof *request->logprobs);
    if (request->top_count > 0) {
        request->alts = xrealloc(request->alts, (size_t)request->output_capacity *
                                 (size_t)request->top_count, sizeof *request->alts);
    }
}

int request_output_count(const EngineRequest *request)
{
    return request->seq.count - request->seq.prompt;
}

const int32_t *request_outputs(const EngineRequest *request)
{
    return request->tokens + request->seq.prompt;
}
