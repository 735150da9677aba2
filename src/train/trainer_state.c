/* trainer_state.c - see trainer_state.h. */
#include "train/trainer_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "io/weights.h"

#define STATE "trainer_state.json"

typedef struct sum_text {
    char text[20];
} sum_text;

static sum_text sum_of(const void *bytes, size_t n)
{
    sum_text s = {0};
    base_format(s.text, sizeof s.text, "%016llx", (unsigned long long)base_checksum(bytes, n));
    return s;
}

static bool is_tensors(const char *name)
{
    const size_t n = strlen(name);
    return n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* One member of "files": of tensors {"bytes": 123, "tensors": {"wte": "…"}}, else {"bytes": 12, "sum": "…"}.
 */
static by_status put_file(base_buf *out, const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    base_map map = {0};
    by_status s = path ? base_map_open(&map, path) : BY_ERR_MEMORY;
    by_weights *w = s == BY_OK && is_tensors(name) ? by_weights_open(path) : NULL;
    if (s == BY_OK && is_tensors(name) && !w)
        s = base_error_status();
    base_json_quote(out, name);
    base_buf_printf(out, ": {\"bytes\": %zu, ", map.size);
    if (!w)
        base_buf_printf(out, "\"sum\": \"%s\"", sum_of(map.data, map.size).text);
    else
        base_buf_puts(out, "\"tensors\": {");
    for (int i = 0; w && i < by_weights_count(w); i++) {
        const by_weight *e = by_weights_at(w, i);
        base_buf_puts(out, i ? ",\n      " : "\n      ");
        base_json_quote(out, e->name);
        base_buf_printf(out, ": \"%s\"", sum_of(e->data, e->bytes).text);
        base_map_forget(e->data, e->bytes);
    }
    base_buf_puts(out, w ? "}}" : "}");
    by_weights_free(w);
    base_map_close(&map);
    base_free(path);
    return s;
}

/* Whether a path of the directory is a file that is listed. */
static bool is_listed(const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    const bool listed = path && *name != '.' && strcmp(name, STATE) != 0 && !base_dir_exists(path);
    base_free(path);
    return listed;
}

/* Doubles are stored as hexadecimal text, which is exact. The last member is the checksum of all text before
 * it. */
by_status train_state_write(const train_run_state *s, const char *dir)
{
    base_buf text = {0};
    char **names;
    int count;
    base_buf_printf(&text, "{\n  \"step\": %lld,\n  \"best_step\": %lld,\n  \"stale\": %d,\n",
                    (long long)s->step, (long long)s->best_step, s->stale);
    if (isnan(s->best_eval))
        base_buf_puts(&text, "  \"best_eval\": null,\n");
    else
        base_buf_printf(&text, "  \"best_eval\": \"%a\",\n", s->best_eval);
    if (!isnan(s->best_loss))
        base_buf_printf(&text, "  \"best_loss\": \"%a\",\n", s->best_loss);
    base_buf_puts(&text, "  \"files\": {");
    by_status status = train_folder_files(dir, NULL, &names, &count);
    for (int i = 0, n = 0; i < count && status == BY_OK; i++)
        if (is_listed(dir, names[i])) {
            base_buf_puts(&text, n++ ? ",\n    " : "\n    ");
            status = put_file(&text, dir, names[i]);
        }
    base_paths_free(names, count);
    base_buf_puts(&text, "\n  },\n");
    if (!text.failed)
        base_buf_printf(&text, "  \"checksum\": \"%s\"\n}\n", sum_of(text.data, text.size).text);
    char *path = base_path_join(dir, STATE);
    if (status == BY_OK)
        status = text.failed || !path ? BY_ERR_MEMORY : base_file_write(path, text.data, text.size);
    base_free(path);
    base_buf_free(&text);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Verifies the checksum of the text before the last member. Older files have none. */
static by_status check_text(const char *text, const char *path)
{
    static const char key[] = "  \"checksum\": \"";
    const char *at = NULL;
    for (const char *p = text; (p = strstr(p, key)); p++)
        at = p;
    if (at && strncmp(at + sizeof key - 1, sum_of(text, (size_t)(at - text)).text, 16) != 0)
        return base_fail(BY_ERR_FORMAT, "%s is damaged: its checksum differs", path);
    return BY_OK;
}

static cJSON *load(const char *dir)
{
    char *path = base_path_join(dir, STATE);
    size_t size;
    char *text = path ? base_file_read(path, BY_JSON_MAX_BYTES, &size) : NULL;
    cJSON *json = text && check_text(text, path) == BY_OK ? base_json_parse(text, size, path) : NULL;
    base_free(text);
    base_free(path);
    return json;
}

static by_status read_numbers(const cJSON *json, train_run_state *s)
{
    int64_t stale = 0;
    const char *best = NULL, *loss = NULL;
    BY_TRY(base_json_int(json, "step", -1, 0, INT64_C(1) << 50, &s->step));
    if (s->step < 0)
        return base_fail(BY_ERR_FORMAT, STATE " does not say its step");
    BY_TRY(base_json_int(json, "best_step", 0, 0, INT64_C(1) << 50, &s->best_step));
    BY_TRY(base_json_int(json, "stale", 0, 0, 1 << 30, &stale));
    BY_TRY(base_json_string(json, "best_eval", NULL, &best));
    BY_TRY(base_json_string(json, "best_loss", NULL, &loss)); /* older files have none */
    s->stale = (int)stale;
    s->best_eval = best ? base_strtod(best, NULL) : NAN;
    s->best_loss = loss ? base_strtod(loss, NULL) : NAN;
    return BY_OK;
}

static by_status check_size(const char *dir, const char *name, int64_t bytes)
{
    char *path = base_path_join(dir, name);
    struct stat st;
    by_status s = BY_OK;
    if (!path)
        return BY_ERR_MEMORY;
    if (stat(path, &st) != 0)
        s = base_fail(BY_ERR_FORMAT, "%s is missing", path);
    else if (bytes >= 0 && st.st_size != bytes)
        s = base_fail(BY_ERR_FORMAT, "%s has %lld bytes instead of %lld", path, (long long)st.st_size,
                      (long long)bytes);
    base_free(path);
    return s;
}

/* A checkpoint of a version that listed no files. */
static by_status check_usual(const char *dir)
{
    static const char *const names[] = {"config.json", "optimizer.safetensors"};
    for (int i = 0; i < BY_COUNT(names); i++)
        BY_TRY(check_size(dir, names[i], -1));
    return check_size(dir, "model.safetensors", -1) == BY_OK ||
                   check_size(dir, "model.safetensors.index.json", -1) == BY_OK
               ? BY_OK
               : base_error_status();
}

by_status train_state_read(train_run_state *s, const char *dir)
{
    train_run_state own;
    cJSON *json = load(dir);
    if (!json)
        return base_error_status();
    by_status status = read_numbers(json, s ? s : &own);
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(json, "files");
    if (status == BY_OK && !files)
        status = check_usual(dir);
    for (const cJSON *f = files ? files->child : NULL; f && status == BY_OK; f = f->next) {
        int64_t bytes = -1;
        status = base_json_int(f, "bytes", -1, 0, INT64_C(1) << 52, &bytes);
        if (status == BY_OK)
            status = check_size(dir, f->string, bytes);
    }
    cJSON_Delete(json);
    return status;
}

static by_status verify_tensors(const char *path, const cJSON *sums)
{
    by_weights *w = by_weights_open(path);
    if (!w)
        return base_error_status();
    by_status s = BY_OK;
    for (const cJSON *t = sums->child; t && s == BY_OK; t = t->next) {
        const by_weight *e = by_weights_find(w, t->string);
        const bool same =
            e && cJSON_IsString(t) && strcmp(t->valuestring, sum_of(e->data, e->bytes).text) == 0;
        if (e)
            base_map_forget(e->data, e->bytes);
        if (!same)
            s = base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" is %s", path, t->string,
                          e ? "damaged: its checksum differs" : "missing");
    }
    by_weights_free(w);
    return s;
}

static by_status verify_file(const char *dir, const cJSON *f)
{
    const cJSON *sums = cJSON_GetObjectItemCaseSensitive(f, "tensors");
    const char *sum = NULL;
    BY_TRY(base_json_string(f, "sum", NULL, &sum));
    char *path = base_path_join(dir, f->string);
    base_map map = {0};
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && sums)
        s = verify_tensors(path, sums);
    else if (s == BY_OK && sum)
        s = base_map_open(&map, path);
    if (s == BY_OK && sum && !sums && strcmp(sum, sum_of(map.data, map.size).text) != 0)
        s = base_fail(BY_ERR_FORMAT, "%s is damaged: its checksum differs", path);
    base_map_close(&map);
    base_free(path);
    return s;
}

by_status train_state_verify(const char *dir)
{
    cJSON *json = load(dir);
    if (!json)
        return base_error_status();
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(json, "files");
    by_status s = BY_OK;
    for (const cJSON *f = files ? files->child : NULL; f && s == BY_OK; f = f->next)
        s = verify_file(dir, f);
    cJSON_Delete(json);
    return s;
}
