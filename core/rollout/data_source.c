/* The file is mapped, every line is checked and its fields are copied into one arena; a prompt
 * set of a million rows takes about its own size in memory and a second to read. */
#include "core/rollout/data_source.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const size_t ARENA_MAX = (size_t)16 << 30;
enum { FIELD_BYTES_MAX = 64 << 20, PROMPT_BYTES_MAX = 16 << 20 };

struct DataSource {
    char *path; /* without the slice */
    Arena *arena;
    DataRow *rows;
    size_t count, capacity;
    uint32_t *order; /* of the present epoch */
    bool shuffle;
    int64_t seed;
    DataPosition position;
};

typedef struct Slice {
    bool has_from, has_to;
    int64_t from, to;
} Slice;

/* ---- the path and its slice ---- */

static bool parse_bound(Str text, bool *has, int64_t *out)
{
    *has = text.n > 0;
    if (!*has) {
        return true;
    }
    Str digits = text.p[0] == '-' ? str_slice(text, 1, text.n) : text;
    return digits.n > 0 && digits.p[0] >= '0' && digits.p[0] <= '9' && str_to_i64(text, out);
}

/* Cuts "@[a:b]" off the end; what does not match the form is part of the name. */
static char *cut_slice(const char *path, Slice *slice)
{
    Str text = str_from(path);
    size_t at;
    *slice = (Slice){0};
    if (!str_rfind(text, STR("@["), &at) || text.p[text.n - 1] != ']') {
        return xstrdup(path);
    }
    Str inner = str_slice(text, at + 2, text.n - 1);
    Slice found = {0};
    size_t colon;
    if (!str_find(inner, STR(":"), &colon) ||
        !parse_bound(str_slice(inner, 0, colon), &found.has_from, &found.from) ||
        !parse_bound(str_slice(inner, colon + 1, inner.n), &found.has_to, &found.to)) {
        return xstrdup(path);
    }
    *slice = found;
    return xstrndup(path, at);
}

/* Python's meaning of a bound on n rows. */
static size_t clamp(bool has, int64_t v, size_t fallback, size_t n)
{
    if (!has) {
        return fallback;
    }
    if (v < 0) {
        v = v < -(int64_t)n ? 0 : v + (int64_t)n;
    }
    return (uint64_t)v > n ? n : (size_t)v;
}

/* Keeps the rows of the slice and numbers them. */
static void apply_slice(DataSource *d, const Slice *slice)
{
    size_t from = clamp(slice->has_from, slice->from, 0, d->count);
    size_t to = clamp(slice->has_to, slice->to, d->count, d->count);
    size_t n = to > from ? to - from : 0;
    if (n > 0 && from > 0) {
        memmove(d->rows, d->rows + from, n * sizeof *d->rows);
    }
    d->count = n;
    for (size_t i = 0; i < n; i++) {
        d->rows[i].index = (int64_t)i;
    }
}

/* ---- lines ---- */

typedef struct Reader {
    DataSource *d;
    const DataConfig *config;
    int64_t line; /* 1-based */
    JsonScan scan;
    Text key_text, scratch, value;
    bool has_prompt, has_label;
    Fault *fault;
} Reader;

static Err bad_line(const Reader *r, Err code, const char *hint, const char *what)
{
    return fault_set(r->fault, code, hint, "%s:%lld: %s", r->d->path, (long long)r->line, what);
}

static Err malformed(const Reader *r)
{
    char text[200];
    (void)str_format(text, sizeof text, "not a JSON object: %s at column %zu",
                     r->scan.error != NULL ? r->scan.error : "malformed", r->scan.at + 1);
    return bad_line(r, ERR_FORMAT, "fix or remove the line", text);
}

static Err keep(const Reader *r, Str text, Str *out)
{
    char *copy = arena_strndup(r->d->arena, text.p != NULL ? text.p : "", text.n);
    if (copy == NULL) {
        return bad_line(r, ERR_LIMIT, "split the file", "the prompts are over 16 GiB");
    }
    *out = (Str){copy, text.n};
    return ERR_OK;
}

static Err read_prompt(Reader *r, DataRow *row)
{
    Str text;
    r->has_prompt = true;
    char c = json_scan_peek(&r->scan);
    if (c == '[') {
        return bad_line(r, ERR_UNSUPPORTED, "write the prompt as one string",
                        "the prompt is a list of messages, which needs a chat template");
    }
    if (c != '"') { /* another value, or none: a line that is cut */
        return json_scan_skip(&r->scan) ? bad_line(r, ERR_FORMAT, "write the prompt as a string",
                                                   "the prompt is not a string")
                                        : malformed(r);
    }
    if (!json_scan_string(&r->scan, &r->scratch, &text)) {
        return malformed(r);
    }
    return keep(r, text, &row->prompt);
}

static Err read_label(Reader *r, DataRow *row)
{
    bool null;
    text_clear(&r->value);
    r->has_label = true;
    if (!label_scan(&r->scan, &r->scratch, &r->value, &row->label_kind, &null)) {
        return malformed(r);
    }
    if (null) {
        row->label = (Str){0};
        return ERR_OK;
    }
    return keep(r, text_str(&r->value), &row->label);
}

static Err read_metadata(Reader *r, DataRow *row)
{
    Str raw;
    char c = json_scan_peek(&r->scan);
    if (c == 'n') {
        return json_scan_null(&r->scan) ? ERR_OK : malformed(r);
    }
    if (c != '{') {
        return json_scan_skip(&r->scan) ? bad_line(r, ERR_FORMAT, "write the metadata as an object",
                                                   "the metadata is not a JSON object")
                                        : malformed(r);
    }
    return json_scan_raw(&r->scan, &raw) ? keep(r, raw, &row->metadata) : malformed(r);
}

static Err read_fields(Reader *r, DataRow *row)
{
    const DataConfig *c = r->config;
    const char *metadata_key = c->metadata_key != NULL ? c->metadata_key : "metadata";
    const char *input_key = c->input_key != NULL ? c->input_key : "input";
    Err err = ERR_OK;
    Str key;
    if (!json_scan_object(&r->scan)) {
        return malformed(r);
    }
    while (err == ERR_OK && json_scan_key(&r->scan, &r->key_text, &key)) {
        size_t start = r->scan.at; /* one key may be asked for twice, as prompt and label */
        int depth = r->scan.depth;
        bool used = false;
        if (str_equal(key, str_from(input_key))) {
            err = read_prompt(r, row);
            used = true;
        }
        if (err == ERR_OK && c->label_key != NULL && str_equal(key, str_from(c->label_key))) {
            r->scan.at = start;
            r->scan.depth = depth;
            err = read_label(r, row);
            used = true;
        }
        if (err == ERR_OK && !used && str_equal(key, str_from(metadata_key))) {
            err = read_metadata(r, row);
            used = true;
        }
        if (!used && !json_scan_skip(&r->scan)) {
            return malformed(r);
        }
    }
    if (err == ERR_OK && !json_scan_end(&r->scan)) {
        return malformed(r);
    }
    return err;
}

static Err missing(const Reader *r, const char *flag, const char *key)
{
    char text[160];
    char hint[160];
    (void)str_format(text, sizeof text, "the row has no \"%.80s\"", key);
    (void)str_format(hint, sizeof hint, "name the right key with %s, or fix the line", flag);
    return bad_line(r, ERR_FORMAT, hint, text);
}

static Err read_line(Reader *r, Str line)
{
    DataSource *d = r->d;
    DataRow row = {.metadata = STR("{}")};
    r->scan = json_scan(line);
    r->has_prompt = false;
    r->has_label = false;
    if (str_starts(line, STR("\xEF\xBB\xBF"))) {
        return bad_line(r, ERR_FORMAT, "remove it", "the line begins with a byte-order mark");
    }
    if (!utf8_valid(line)) {
        return bad_line(r, ERR_FORMAT, "write the file as UTF-8", "the line is not valid UTF-8");
    }
    Err err = read_fields(r, &row);
    if (err != ERR_OK) {
        return err;
    }
    if (!r->has_prompt) {
        return missing(r, "--input-key",
                       r->config->input_key != NULL ? r->config->input_key : "input");
    }
    if (r->config->label_key != NULL && !r->has_label) {
        return missing(r, "--label-key", r->config->label_key);
    }
    if (row.prompt.n > PROMPT_BYTES_MAX) {
        return bad_line(r, ERR_LIMIT, "cut it, or remove the line",
                        "the prompt has more than 16 MiB");
    }
    if (d->count == d->capacity) {
        d->capacity = d->capacity == 0 ? 1024 : d->capacity * 2;
        d->rows = xrealloc(d->rows, d->capacity, sizeof *d->rows);
    }
    d->rows[d->count++] = row;
    return ERR_OK;
}

static Err read_rows(DataSource *d, const DataConfig *config, const Slice *slice, Str file,
                     Fault *fault)
{
    Reader r = {.d = d, .config = config, .fault = fault};
    Err err = ERR_OK;
    Str line;
    text_init(&r.key_text, FIELD_BYTES_MAX);
    text_init(&r.scratch, FIELD_BYTES_MAX);
    text_init(&r.value, FIELD_BYTES_MAX);
    bool counted = slice->has_to && slice->to >= 0 && (!slice->has_from || slice->from >= 0);
    while (err == ERR_OK && str_split(&file, '\n', &line)) {
        r.line++;
        line = str_trim(line);
        if (line.n == 0) {
            continue;
        }
        if (counted && (int64_t)d->count >= slice->to) {
            break; /* rows behind the slice are not looked at */
        }
        if (d->count == UINT32_MAX) {
            err = bad_line(&r, ERR_LIMIT, "split the file", "more than 4 billion rows");
        } else {
            err = read_line(&r, line);
        }
    }
    text_free(&r.key_text);
    text_free(&r.scratch);
    text_free(&r.value);
    return err;
}

/* ---- order ---- */

static void arrange(DataSource *d)
{
    PyRandom random;
    for (size_t i = 0; i < d->count; i++) {
        d->order[i] = (uint32_t)i;
    }
    if (d->shuffle && d->count > 1) {
        py_random_seed(&random, d->seed + d->position.epoch);
        py_random_shuffle(&random, d->order, (uint32_t)d->count);
    }
}

static Err check_name(const char *path, Fault *fault)
{
    Str text = str_from(path);
    if (str_ends(text, STR(".parquet"))) {
        return fault_set(fault, ERR_UNSUPPORTED, "convert it to .jsonl, one object a line",
                         "%s: rolltop does not read Parquet", path);
    }
    if (!str_ends(text, STR(".jsonl"))) {
        return fault_set(fault, ERR_ARG, "give a .jsonl file, one object a line",
                         "%s is no .jsonl file", path);
    }
    return ERR_OK;
}

Err data_open(const DataConfig *config, DataSource **out, Fault *fault)
{
    Slice slice;
    Text file;
    DataSource *d = xcalloc(1, sizeof *d);
    *out = NULL;
    d->path = cut_slice(config->path, &slice);
    d->arena = arena_new(ARENA_MAX);
    text_init(&file, ARENA_MAX);
    d->shuffle = config->shuffle;
    d->seed = config->seed;
    Err err = check_name(d->path, fault);
    if (err == ERR_OK) {
        err = fs_read(d->path, &file, fault);
    }
    if (err == ERR_OK) {
        err = read_rows(d, config, &slice, text_str(&file), fault);
    }
    text_free(&file);
    if (err == ERR_OK) {
        apply_slice(d, &slice);
        if (d->count == 0) {
            err = fault_set(fault, ERR_FORMAT, "give a file with rows, or widen the slice",
                            "%s holds no prompt", config->path);
        }
    }
    if (err != ERR_OK) {
        data_free(d);
        return err;
    }
    d->order = xcalloc(d->count, sizeof *d->order);
    arrange(d);
    *out = d;
    return ERR_OK;
}

void data_free(DataSource *data)
{
    if (data == NULL) {
        return;
    }
    arena_free(data->arena);
    free(data->rows);
    free(data->order);
    free(data->path);
    free(data);
}

int64_t data_count(const DataSource *data)
{
    return (int64_t)data->count;
}

const DataRow *data_row(const DataSource *data, int64_t index)
{
    return index >= 0 && (uint64_t)index < data->count ? &data->rows[index] : NULL;
}

void data_filter(DataSource *data, bool (*keep_row)(const DataRow *row, void *user), void *user)
{
    size_t kept = 0;
    for (size_t i = 0; i < data->count; i++) {
        if (keep_row(&data->rows[i], user)) {
            data->rows[kept++] = data->rows[i];
        }
    }
    data->count = kept;
    arrange(data);
}

/* Appends up to k rows from the present place; the place may lie behind the end. */
static int64_t take_run(DataSource *d, int64_t k, const DataRow **rows)
{
    int64_t n = 0;
    while (n < k && d->position.offset + n < (int64_t)d->count) {
        rows[n] = &d->rows[d->order[d->position.offset + n]];
        n++;
    }
    return n;
}

int64_t data_take(DataSource *data, int64_t k, const DataRow **rows)
{
    if (data->count == 0 || k <= 0) {
        return 0;
    }
    int64_t left = (int64_t)data->count - data->position.offset;
    int64_t taken = take_run(data, k, rows);
    if (left >= k) {
        data->position.offset += k;
        return taken;
    }
    /* one wrap a request; slime counts what it asked for after the wrap, so the offset can pass
     * the end when the data set is smaller than the request */
    int64_t due = k - taken;
    data->position.epoch++;
    data->position.offset = 0;
    arrange(data);
    int64_t again = take_run(data, due, rows + taken);
    data->position.offset = due;
    return taken + again;
}

DataPosition data_position(const DataSource *data)
{
    return data->position;
}

void data_seek(DataSource *data, DataPosition position)
{
    data->position.epoch = position.epoch < 0 ? 0 : position.epoch;
    data->position.offset = position.offset < 0 ? 0 : position.offset;
    arrange(data);
}
