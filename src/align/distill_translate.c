/* distill_translate.c - sequence-level distillation (Kim and Rush 2016): the teacher translates the training
 * sources once, and its translations replace the targets. The files are in out/teacher, and their name is a
 * hash of the teacher, the search and the data. */
#include <stdio.h>

#include "align/distill_run.h"
#include "banyan/evaluate.h"
#include "base/file.h"
#include "base/json.h"

/* A hash of the teacher, the search and the data. */
static by_status name_of(const distill_run *r, uint64_t *out)
{
    const by_distill_run_spec *s = &r->spec;
    uint64_t hash = r->fingerprint + (uint64_t)s->beams;
    for (int i = 0; i < s->data_count; i++) {
        base_map map;
        BY_TRY(base_map_open(&map, s->data[i]));
        hash = base_hash(map.data, map.size, hash);
        base_map_close(&map);
    }
    *out = hash;
    return BY_OK;
}

/* Writes a text as one line. */
static by_status put_line(base_writer *w, const cJSON *line, const char *key)
{
    const char *text;
    BY_TRY(base_json_string(line, key, "", &text));
    for (const char *c = text; *c; c++)
        BY_TRY(base_writer_put(w, *c == '\n' || *c == '\r' ? " " : c, 1));
    return base_writer_put(w, "\n", 1);
}

static by_status put_lines(char *text, base_writer *source, base_writer *target)
{
    by_status s = BY_OK;
    char *rest = NULL;
    for (char *at = strtok_r(text, "\n", &rest); at && s == BY_OK; at = strtok_r(NULL, "\n", &rest)) {
        cJSON *line = base_json_tree(at, strlen(at), NULL, true);
        s = line ? put_line(source, line, "source")
                 : base_fail(BY_ERR_FORMAT, "a translation is not a JSON object");
        if (s == BY_OK)
            s = put_line(target, line, "text");
        cJSON_Delete(line);
    }
    return s;
}

/* Splits the objects that the search wrote into two files of lines. */
static by_status split(const char *from, const char *source, const char *target)
{
    base_writer a = {0}, b = {0};
    char *text = base_file_read(from, (size_t)1 << 40, NULL);
    by_status s = text ? base_writer_open(&a, source) : base_error_status();
    if (s == BY_OK)
        s = base_writer_open(&b, target);
    if (s == BY_OK)
        s = put_lines(text, &a, &b);
    if (s == BY_OK)
        s = base_writer_finish(&a);
    else
        base_writer_abort(&a);
    if (s == BY_OK)
        s = base_writer_finish(&b);
    else
        base_writer_abort(&b);
    base_free(text);
    return s;
}

static by_status translate(distill_run *r, const char *path)
{
    const by_distill_run_spec *s = &r->spec;
    by_text_result result;
    const by_text_spec spec = {.metrics = "exact", /* the cheapest form; no scores are read */
                               .prefix = s->objective.prefix_count ? s->objective.prefixes[0] : NULL,
                               .words = s->objective.label_words,
                               .source = s->objective.source,
                               .target = s->objective.target,
                               .beams = s->beams,
                               .predictions = path,
                               .progress = s->wrote,
                               .cancelled = s->cancelled,
                               .user = s->user};
    return by_text_evaluate(r->teacher, r->tokenizer, s->teacher, s->data, s->data_count, &spec, &result);
}

by_status distill_translations(distill_run *r, char **source, char **target)
{
    uint64_t name;
    BY_TRY(name_of(r, &name));
    char *dir = base_path_join(r->spec.out, "teacher");
    char *all = dir ? base_sprintf("%s/translations-%016llx.jsonl", dir, (unsigned long long)name) : NULL;
    *source = all ? base_sprintf("%s.source", all) : NULL;
    *target = all ? base_sprintf("%s.target", all) : NULL;
    by_status s = *target ? base_dir_make(dir) : BY_ERR_MEMORY;
    char *const files[] = {all, *source, *target};
    for (int i = 0; i < BY_COUNT(files) && s == BY_OK; i++)
        base_file_remove_leftovers(files[i]);
    if (s == BY_OK && !base_file_exists(all))
        s = translate(r, all);
    if (s == BY_OK && !base_file_exists(*target))
        s = split(all, *source, *target);
    base_free(all);
    base_free(dir);
    return s;
}
