/* picture_folder.c - directories of pictures, one sub-directory per class, and lists of files
 * (data/picture_set.h). */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/input.h"
#include "data/picture_set.h"

enum { DEEPEST = 16 };

bool data_picture_set_is_picture(const char *name)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif"};
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < BY_COUNT(endings); i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static by_status walk(by_picture_set *p, const char *dir, const char *label, int depth);

/* One entry of a directory. On the first level, the name of a sub-directory is a class. */
static by_status visit(by_picture_set *p, const char *dir, const char *name, const char *label, int depth)
{
    const char *path = base_arena_sprintf(p->arena, "%s/%s", dir, name);
    if (!path)
        return BY_ERR_MEMORY;
    if (base_dir_exists(path)) {
        const bool labelled = p->spec.kind == BY_EXAMPLE_IMAGE_CLASSIFY;
        return walk(p, path, label || !labelled ? label : name, depth + 1);
    }
    if (!data_picture_set_is_picture(name))
        return BY_OK;
    if (!label && p->spec.kind == BY_EXAMPLE_IMAGE_CLASSIFY)
        return base_fail(BY_ERR_FORMAT, "%s: the picture is not in a sub-directory named after its class",
                         path);
    return data_picture_set_add(p, path, label, NULL);
}

static by_status walk(by_picture_set *p, const char *dir, const char *label, int depth)
{
    struct dirent **names;
    if (depth > DEEPEST)
        return base_fail(BY_ERR_FORMAT, "%s: sub-directories are more than %d deep", dir, DEEPEST);
    const int n = scandir(dir, &names, visible, compare_names);
    if (n < 0)
        return base_fail(BY_ERR_IO, "cannot read %s: %s", dir, strerror(errno));
    by_status s = base_cancel_check();
    for (int i = 0; i < n; i++) {
        if (s == BY_OK)
            s = visit(p, dir, names[i]->d_name, label, depth);
        free(names[i]); /* allocated by scandir */
    }
    free(names);
    return s;
}

by_status data_picture_set_folder(by_picture_set *p, const char *dir)
{
    const int64_t before = p->count;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    const char *own = base_arena_sprintf(p->arena, "%.*s", (int)n, dir);
    if (!own)
        return BY_ERR_MEMORY;
    if (p->spec.kind == BY_EXAMPLE_CAPTION)
        return base_fail(
            BY_ERR_FORMAT,
            "%s: captions need a list of files and sentences, such as metadata.csv in the directory", dir);
    BY_TRY(walk(p, own, NULL, 0));
    return p->count > before
               ? BY_OK
               : base_fail(BY_ERR_FORMAT, "%s: no PNG, JPEG, WebP or GIF file in the directory", dir);
}

/* ---- lists --------------------------------------------------------------------------------------- */

static by_status add_row(by_picture_set *p, const data_examples *e, const data_example *x)
{
    const char *slash = strrchr(e->path, '/');
    const bool relative = x->text[0] != '/' && slash;
    const char *path =
        base_arena_sprintf(p->arena, "%.*s%s", relative ? (int)(slash + 1 - e->path) : 0, e->path, x->text);
    const char *value = x->n_labels ? base_arena_strdup(p->arena, x->labels[0]) : NULL;
    if (!path || (x->n_labels && !value))
        return BY_ERR_MEMORY;
    const bool caption = p->spec.kind == BY_EXAMPLE_CAPTION;
    by_status s = data_picture_set_add(p, path, caption ? NULL : value, caption ? value : NULL);
    return s == BY_ERR_IO ? base_fail_context("%s, line %d", base_input_name(e->path), x->line) : s;
}

by_status data_picture_set_list(by_picture_set *p, const char *path)
{
    data_examples e;
    p->had_list = true;
    by_status s = data_examples_open(
        &e, path,
        &(by_examples_spec){
            .kind = p->spec.kind, .text = p->spec.file, .label = p->spec.label, .header = p->spec.header});
    for (int i = 0; i < e.count && s == BY_OK; i++)
        s = add_row(p, &e, &e.list[i]);
    data_examples_close(&e);
    return s;
}
