/* pictures.c - see pictures.h. */
#include "cli/pictures.h"

#include "base/file.h"
#include "cli/read.h"
#include "data/picture_set.h"

static by_picture_set *open_paths(char *const *paths, int count, int channels)
{
    const by_picture_set_spec spec = {.kind = BY_EXAMPLE_IMAGE,
                                      .format = channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB};
    return by_picture_set_open((const char *const *)paths, count, &spec);
}

bool cli_names_pictures(const char *argument)
{
    return base_file_exists(argument) || base_dir_exists(argument) || data_picture_set_is_picture(argument);
}

/* The lines of standard input. */
static by_picture_set *open_lines(int channels)
{
    cli_texts lines = {0};
    char **all = NULL;
    int count = 0;
    by_status s;
    while ((s = cli_texts_next(&lines)) == BY_OK && lines.count > 0) {
        char **more = base_resize(all, (size_t)count + (size_t)lines.count, sizeof *more);
        if (!more) {
            s = BY_ERR_MEMORY;
            break;
        }
        all = more;
        for (int i = 0; i < lines.count; i++) {
            all[count++] = lines.texts[i];
            lines.texts[i] = NULL;
        }
    }
    cli_texts_free(&lines);
    if (s == BY_OK && count == 0)
        s = base_fail(BY_ERR_ARGUMENT,
                      "no pictures: give them as arguments, or their paths on standard input");
    by_picture_set *set = s == BY_OK ? open_paths(all, count, channels) : NULL;
    for (int i = 0; i < count; i++)
        base_free(all[i]);
    base_free(all);
    return set;
}

by_picture_set *cli_pictures_open(char **paths, int count, const char *path, int channels)
{
    char *one = (char *)path;
    if (count > 0)
        return open_paths(paths, count, channels);
    return path && strcmp(path, "-") != 0 ? open_paths(&one, 1, channels) : open_lines(channels);
}
