/* Verdicts follow the Rust reference in their order: length, UTF-8, JSON, then offsets in the
 * order of the data, then full cover. Sizes: a large sharded checkpoint has some 10^3 tensors a
 * file; a hostile header of 100 MB may name 2 * 10^6, which costs about 20 times its bytes. */
#include "core/model/st_header.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/model/json_scan.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 100000000 };
static const size_t TABLE_MAX = (size_t)4 << 30;

typedef struct Entry { /* a tensor as the header states it, before it is judged */
    StTensor tensor;
    uint64_t begin, end;
    size_t order;      /* in the header */
    bool overflow;     /* the product of the shape does not fit */
    uint64_t elements; /* valid unless overflow */
} Entry;

typedef struct Parse {
    JsonScan scan;
    Text scratch;
    const char *path;
    Entry *entries;
    size_t count, capacity;
    StHeader *out;
    bool metadata_seen;
    Fault *fault;
} Parse;

static Err refuse(const Parse *p, const char *class_name, const char *detail)
{
    return fault_set(p->fault, ERR_FORMAT, "fetch or write the file again",
                     "%s is not a valid safetensors file: %s%s%s", p->path, class_name,
                     detail[0] != '\0' ? ", " : "", detail);
}

static Err refuse_tensor(const Parse *p, const char *class_name, const StTensor *tensor)
{
    return fault_set(p->fault, ERR_FORMAT, "fetch or write the file again",
                     "%s is not a valid safetensors file: %s for tensor `%s`", p->path, class_name,
                     tensor->name);
}

static Err refuse_json(const Parse *p)
{
    char place[160];
    (void)str_format(place, sizeof place, "%s at byte %zu of the header",
                     p->scan.error != NULL ? p->scan.error : "malformed", p->scan.at);
    return refuse(p, "invalid JSON in header", place);
}

static char *copy_str(Str s)
{
    char *copy = xcalloc(s.n + 1, 1);
    if (s.n > 0) {
        memcpy(copy, s.p, s.n);
    }
    return copy;
}

/* Makes room for one more element of `size` bytes by doubling, bounded by TABLE_MAX. */
static bool grow(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    size_t wanted = *capacity == 0 ? 64 : *capacity * 2;
    size_t bytes;
    if (!size_mul(wanted, size, &bytes) || bytes > TABLE_MAX) {
        return false;
    }
    void *p = realloc(*array, bytes);
    if (p == NULL) {
        return false;
    }
    *array = p;
    *capacity = wanted;
    return true;
}

static bool parse_metadata(Parse *p)
{
    JsonScan *s = &p->scan;
    if (p->metadata_seen) {
        return json_scan_fail(s, "__metadata__ stands twice");
    }
    p->metadata_seen = true;
    if (json_scan_peek(s) == 'n') {
        return json_scan_null(s);
    }
    if (!json_scan_object(s)) {
        return false;
    }
    size_t capacity = 0;
    Str key;
    while (json_scan_key(s, &p->scratch, &key)) {
        StHeader *h = p->out;
        if (!grow((void **)&h->metadata, &capacity, h->metadata_count + 1, sizeof(char *))) {
            return json_scan_fail(s, "too much metadata");
        }
        for (size_t i = 0; i < h->metadata_count && h->metadata_count < 2048; i += 2) {
            if (str_equal(str_from(h->metadata[i]), key)) {
                return json_scan_fail(s, "a key of __metadata__ stands twice");
            }
        }
        h->metadata[h->metadata_count] = copy_str(key);
        h->metadata[h->metadata_count + 1] = NULL;
        h->metadata_count += 2;
        Str value;
        if (!json_scan_string(s, &p->scratch, &value)) {
            return false;
        }
        h->metadata[h->metadata_count - 1] = copy_str(value);
    }
    return s->error == NULL;
}

static bool parse_dtype(JsonScan *s, Text *scratch, StDtype *out)
{
    Str text;
    if (!json_scan_string(s, scratch, &text)) {
        return false;
    }
    for (int d = 0; d <= (int)ST_C64; d++) {
        if (str_equal(text, str_from(st_dtype_name((StDtype)d)))) {
            *out = (StDtype)d;
            return true;
        }
    }
    return json_scan_fail(s, "unknown dtype");
}

static bool parse_shape(JsonScan *s, Entry *entry)
{
    entry->elements = 1;
    if (!json_scan_array(s)) {
        return false;
    }
    while (json_scan_item(s)) {
        uint64_t v;
        if (!json_scan_u64(s, &v)) {
            return false;
        }
        if (__builtin_mul_overflow(entry->elements, v, &entry->elements)) {
            entry->overflow = true;
        }
        if (entry->tensor.rank == ST_RANK_MAX) {
            return json_scan_fail(s, "more than 16 dimensions, which rolltop does not read");
        }
        if (v > INT64_MAX) {
            entry->overflow = true;
            v = INT64_MAX;
        }
        entry->tensor.shape[entry->tensor.rank++] = (int64_t)v;
    }
    return s->error == NULL;
}

static bool parse_offsets(JsonScan *s, Entry *entry)
{
    uint64_t at[2];
    int n = 0;
    if (!json_scan_array(s)) {
        return false;
    }
    while (json_scan_item(s)) {
        uint64_t v;
        if (!json_scan_u64(s, &v)) {
            return false;
        }
        if (n == 2) {
            return json_scan_fail(s, "data_offsets has more than two numbers");
        }
        at[n++] = v;
    }
    if (s->error == NULL && n != 2) {
        return json_scan_fail(s, "data_offsets has fewer than two numbers");
    }
    if (s->error == NULL) {
        entry->begin = at[0];
        entry->end = at[1];
    }
    return s->error == NULL;
}

static bool once(JsonScan *s, bool *seen)
{
    if (*seen) {
        return json_scan_fail(s, "a field of a tensor stands twice");
    }
    *seen = true;
    return true;
}

static bool parse_tensor(Parse *p, Entry *entry)
{
    JsonScan *s = &p->scan;
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
    Str key;
    if (!json_scan_object(s)) {
        return false;
    }
    while (json_scan_key(s, &p->scratch, &key)) {
        bool good;
        if (str_equal(key, STR("dtype"))) {
            good = once(s, &dtype) && parse_dtype(s, &p->scratch, &entry->tensor.dtype);
        } else if (str_equal(key, STR("shape"))) {
            good = once(s, &shape) && parse_shape(s, entry);
        } else if (str_equal(key, STR("data_offsets"))) {
            good = once(s, &offsets) && parse_offsets(s, entry);
        } else {
            good = json_scan_skip(s);
        }
        if (!good) {
            return false;
        }
    }
    if (s->error == NULL && !(dtype && shape && offsets)) {
        return json_scan_fail(s, "a tensor lacks dtype, shape or data_offsets");
    }
    return s->error == NULL;
}

static bool parse_object(Parse *p)
{
    JsonScan *s = &p->scan;
    Str key;
    if (s->n > 0 && s->p[0] != '{') {
        return json_scan_fail(s, "the header does not begin with {");
    }
    if (!json_scan_object(s)) {
        return false;
    }
    while (json_scan_key(s, &p->scratch, &key)) {
        if (str_equal(key, STR("__metadata__"))) {
            if (!parse_metadata(p)) {
                return false;
            }
            continue;
        }
        if (!grow((void **)&p->entries, &p->capacity, p->count, sizeof *p->entries)) {
            return json_scan_fail(s, "too many tensors");
        }
        Entry *entry = &p->entries[p->count];
        *entry = (Entry){.order = p->count};
        entry->tensor.name = copy_str(key);
        entry->tensor.name_n = key.n;
        p->count++;
        if (!parse_tensor(p, entry)) {
            return false;
        }
    }
    return s->error == NULL && json_scan_end(s);
}

static int by_place(const void *a, const void *b)
{
    const Entry *x = a;
    const Entry *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end < y->end ? -1 : 1;
    }
    return (x->order > y->order) - (x->order < y->order);
}

static size_t slot_of(const StHeader *h, Str name, bool *found)
{
    size_t mask = h->slot_count - 1;
    size_t i = (size_t)hash64(name.p, name.n, 0) & mask;
    *found = false;
    while (h->slots[i] != 0) {
        const StTensor *t = &h->tensors[h->slots[i] - 1];
        if (str_equal((Str){t->name, t->name_n}, name)) {
            *found = true;
            break;
        }
        i = (i + 1) & mask;
    }
    return i;
}

/* Moves the entries into the header in the order of their data and indexes them by name. */
static Err index_names(Parse *p)
{
    StHeader *h = p->out;
    void *memory;
    size_t slots = 16;
    while (slots < p->count * 2) {
        slots *= 2;
    }
    if (p->count > UINT32_MAX / 2 ||
        try_calloc(slots, sizeof *h->slots, TABLE_MAX, &memory) != ERR_OK) {
        return fault_set(p->fault, ERR_MEMORY, NULL, "no memory for the tensors of %s", p->path);
    }
    h->slots = memory;
    h->slot_count = slots;
    if (try_calloc(p->count, sizeof *h->tensors, TABLE_MAX, &memory) != ERR_OK) {
        return fault_set(p->fault, ERR_MEMORY, NULL, "no memory for the tensors of %s", p->path);
    }
    h->tensors = memory;
    if (p->count > 1) {
        qsort(p->entries, p->count, sizeof *p->entries, by_place);
    }
    for (size_t i = 0; i < p->count; i++) {
        StTensor *t = &p->entries[i].tensor;
        bool found;
        size_t slot = slot_of(h, (Str){t->name, t->name_n}, &found);
        if (found) {
            return refuse_tensor(p, "a duplicate name", t);
        }
        h->tensors[i] = *t;
        h->count = i + 1;
        h->slots[slot] = (uint32_t)i + 1;
        t->name = NULL;
    }
    return ERR_OK;
}

/* The data begins at byte `from` of the file and has `bytes` bytes. */
static Err judge(Parse *p, uint64_t from, uint64_t bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < p->count; i++) {
        const Entry *e = &p->entries[i];
        StTensor *t = &p->out->tensors[i];
        uint64_t bits;
        if (e->begin != at || e->end < e->begin) {
            return refuse_tensor(p, "invalid offset", t);
        }
        at = e->end;
        if (e->overflow ||
            __builtin_mul_overflow(e->elements, st_dtype_bits(e->tensor.dtype), &bits)) {
            return refuse_tensor(p, "overflow of the size", t);
        }
        if (bits % 8 != 0) {
            return refuse_tensor(p, "sub-byte type that ends inside a byte", t);
        }
        if (bits / 8 != e->end - e->begin) {
            return refuse_tensor(p, "size mismatch of shape, dtype and offsets", t);
        }
        t->bytes = (size_t)(bits / 8);
    }
    if (at != bytes) {
        return refuse(p, "not fully covered: the tensors' data and the file differ in length", "");
    }
    for (size_t i = 0; i < p->count; i++) {
        p->out->tensors[i].at = from + p->entries[i].begin;
    }
    return ERR_OK;
}

static uint64_t header_length(Str head)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | (unsigned char)head.p[i];
    }
    return n;
}

size_t st_header_extent(Str start, uint64_t file_bytes)
{
    uint64_t n = start.n < 8 ? HEADER_MAX + 1 : header_length(start);
    bool whole = n <= HEADER_MAX && file_bytes >= 8 && n <= file_bytes - 8;
    return whole ? (size_t)n + 8 : start.n;
}

Err st_header_parse(Str head, uint64_t file_bytes, const char *path, StHeader *out, Fault *fault)
{
    Parse p = {.path = path, .out = out, .fault = fault};
    *out = (StHeader){0};
    if (head.n < 8) {
        return refuse(&p, "header too small", "the file has fewer than 8 bytes");
    }
    uint64_t n = header_length(head);
    if (n > HEADER_MAX) {
        return refuse(&p, "header too large", "over 100,000,000 bytes");
    }
    if (n > file_bytes - 8 || n > head.n - 8) {
        return refuse(&p, "invalid header length", "the file ends inside the header");
    }
    Str header = {head.p + 8, (size_t)n};
    if (!utf8_valid(header)) {
        return refuse(&p, "invalid UTF-8 in header", "");
    }
    text_init(&p.scratch, HEADER_MAX);
    p.scan = json_scan(header);
    Err err = ERR_OK;
    if (!parse_object(&p)) {
        err = refuse_json(&p);
    }
    if (err == ERR_OK) {
        err = index_names(&p);
    }
    if (err == ERR_OK) {
        err = judge(&p, 8 + n, file_bytes - 8 - n);
    }
    for (size_t i = 0; i < p.count; i++) {
        free((void *)(uintptr_t)p.entries[i].tensor.name);
    }
    free(p.entries);
    text_free(&p.scratch);
    if (err != ERR_OK) {
        st_header_free(out);
    }
    return err;
}

void st_header_free(StHeader *header)
{
    for (size_t i = 0; i < header->count; i++) {
        free((void *)(uintptr_t)header->tensors[i].name);
    }
    for (size_t i = 0; i < header->metadata_count; i++) {
        free(header->metadata[i]);
    }
    free(header->metadata);
    free(header->tensors);
    free(header->slots);
    *header = (StHeader){0};
}

const StTensor *st_header_find(const StHeader *header, Str name)
{
    bool found;
    if (header->slot_count == 0) {
        return NULL;
    }
    size_t slot = slot_of(header, name, &found);
    return found ? &header->tensors[header->slots[slot] - 1] : NULL;
}
