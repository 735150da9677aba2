/* pixel_options.c - see pixel_options.h. */
#include "cli/pixel_options.h"

#include <stdlib.h>

#include "cli/report.h"

/* A length, or rows and columns; -1 represents 0. */
static bool read_extent(const char *name, const char *text, int *rows, int *columns)
{
    char *end;
    const long first = strtol(text, &end, 10);
    const bool whole = end > text && *end == '\0';
    const char *after = !whole && *end == 'x' ? end + 1 : end;
    const long second = whole ? -1 : strtol(after, &end, 10);
    if (first < 0 || first > 1 << 24 || second > 1 << 24 ||
        (!whole && (end == after || *end != '\0' || second < 0))) {
        cli_usage_fail("--%s %s: expected a length, or rows and columns as in 7x14", name, text);
        return false;
    }
    *columns = (int)(second < 0 ? first : second);
    *columns = *columns ? *columns : -1;
    if (second >= 0)
        *rows = first ? (int)first : -1;
    return true;
}

bool cli_pixels_read(const cli_pixels *x, by_model_shape *shape)
{
    if (x->block && !read_extent("query-block", x->block, &shape->block_rows, &shape->block_columns))
        return false;
    return !x->memory || read_extent("local-memory", x->memory, &shape->memory_rows, &shape->memory_columns);
}
