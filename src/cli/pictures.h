/* pictures.h - shared by the verbs that read pictures. */
#ifndef BY_CLI_PICTURES_H
#define BY_CLI_PICTURES_H

#include "banyan/picture_set.h"

/* Opens the pictures of a command: `count` paths of pictures, directories and datasets; without any, the
 * dataset at `path`, or where that is NULL or "-" the paths on standard input, one per line. channels: 1 for
 * grey pictures, 3 for RGB. NULL on failure. */
by_picture_set *cli_pictures_open(char **paths, int count, const char *path, int channels);

/* Whether an argument of a verb that reads texts and pictures means pictures: it is a file or a directory, or
 * has the extension of a picture. */
bool cli_names_pictures(const char *argument);

#endif
