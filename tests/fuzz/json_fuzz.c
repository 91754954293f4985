#include "tests/fuzz/fuzz.h"

#include "core/base/json.h"
#include "core/base/utf8.h"

#include <stdlib.h>

const char *const fuzz_seeds[] = {"{\"a\":[1,2.5e-3,true,null,\"\\u00e9x\"],\"b\":{\"c\":\"d\"}}",
                                  "[[[[[]]]]]", "\"\\ud83d\\ude00\"", NULL};

/* What is accepted must come out of the writer as JSON that is accepted again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *tree = NULL;
    Str body = {(const char *)data, size};
    if (json_parse(body, 1 << 20, "fuzz", &tree, NULL) == ERR_OK) {
        const cJSON *first = cJSON_IsArray(tree) || cJSON_IsObject(tree) ? tree->child : tree;
        const char *text = cJSON_IsString(first) ? first->valuestring : "";
        Text out;
        text_init(&out, 1 << 20);
        JsonOut writer;
        json_begin(&writer, &out);
        json_object_begin(&writer);
        json_member_string(&writer, text, text);
        json_object_end(&writer);
        cJSON *again = NULL;
        if (json_parse(text_str(&out), 1 << 21, "written", &again, NULL) != ERR_OK ||
            !utf8_valid(text_str(&out))) {
            abort();
        }
        cJSON_Delete(again);
        text_free(&out);
        cJSON_Delete(tree);
    }
    return 0;
}
