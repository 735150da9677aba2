/* tune.cu - the file of tune.cuh: one line per product with its key, the size of the workspace and the words
 * that identify a kernel, in hexadecimal. Damaged lines are skipped. */
#include "cuda/tune.cuh"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Increased when products are measured in a new way: entries of older files are then measured again. */
enum { EDITION = 2 };

struct cuda_tuner {
    int file;
    cuda_tuned *list;
    int count, capacity;
};

/* $BANYAN_CACHE, otherwise the user's cache folder. Heap string or NULL. */
static char *cache_folder()
{
    const char *own = getenv("BANYAN_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own)
        return base_strdup(own);
    if (cache && *cache)
        return base_sprintf("%s/banyan", cache);
    return home && *home ? base_sprintf("%s/.cache/banyan", home) : NULL;
}

/* Creates a folder and its parents. */
static bool make_folder(char *path)
{
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        const char end = *at;
        *at = '\0';
        const bool made = mkdir(path, 0755) == 0 || errno == EEXIST;
        *at = end;
        if (!made || !end)
            return made;
    }
}

static int open_file(const char *card, int version)
{
    char name[64] = "";
    for (int i = 0; card[i] && i < 63; i++) {
        const char c = card[i];
        const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        name[i] = plain ? c : '-';
    }
    char *folder = cache_folder();
    char *path = folder && make_folder(folder)
                     ? base_sprintf("%s/gemm%d-%s-%d", folder, EDITION, name, version)
                     : NULL;
    int file = path ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    base_free(folder);
    base_free(path);
    return file;
}

static by_status remember(cuda_tuner *t, const cuda_tuned *found)
{
    if (t->count == t->capacity) {
        const int grown = t->capacity ? 2 * t->capacity : 32;
        cuda_tuned *more = (cuda_tuned *)base_resize(t->list, (size_t)grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        t->list = more;
        t->capacity = grown;
    }
    t->list[t->count++] = *found;
    return BY_OK;
}

static bool read_line(const char *line, cuda_tuned *out)
{
    int used = 0;
    unsigned long long word;
    if (sscanf(line, "%127s %llx%n", out->key, &word, &used) != 2)
        return false;
    out->workspace = word;
    for (int i = 0; i < BY_TUNE_WORDS; i++) {
        int more = 0;
        if (sscanf(line + used, " %llx%n", &word, &more) != 1)
            return false;
        out->algo[i] = word;
        used += more;
    }
    return strcmp(line + used, " .\n") == 0; /* a truncated line has no full stop */
}

cuda_tuner *cuda_tuner_open(const char *card, int version)
{
    const char *wish = getenv("BANYAN_TUNE");
    if (wish && strcmp(wish, "0") == 0)
        return NULL;
    const int file = open_file(card, version), copy = file < 0 ? -1 : dup(file);
    FILE *from = copy < 0 ? NULL : fdopen(copy, "r");
    cuda_tuner *t = from ? (cuda_tuner *)base_alloc_zero(1, sizeof *t) : NULL;
    char line[512];
    cuda_tuned one;
    while (t && fgets(line, sizeof line, from))
        if (read_line(line, &one) && !cuda_tuner_find(t, one.key) && remember(t, &one) != BY_OK)
            break;
    if (from)
        fclose(from);
    else if (copy >= 0)
        close(copy);
    if (!t) {
        if (file >= 0)
            close(file);
        base_error_clear();
        return NULL;
    }
    t->file = file;
    return t;
}

void cuda_tuner_close(cuda_tuner *t)
{
    if (!t)
        return;
    close(t->file);
    base_free(t->list);
    base_free(t);
}

const cuda_tuned *cuda_tuner_find(const cuda_tuner *t, const char *key)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->list[i].key, key) == 0)
            return &t->list[i];
    return NULL;
}

/* Uses one write, so that lines of several processes do not mix. */
by_status cuda_tuner_add(cuda_tuner *t, const cuda_tuned *found)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s %llx", found->key, (unsigned long long)found->workspace);
    for (int i = 0; i < BY_TUNE_WORDS; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %llx", (unsigned long long)found->algo[i]);
    n += snprintf(line + n, sizeof line - (size_t)n, " .\n");
    const ssize_t written = write(t->file, line, (size_t)n);
    (void)written;
    return remember(t, found);
}
