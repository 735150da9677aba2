/* captions.c - composes pictures with captions: garments of Fashion-MNIST, in random colours and places, each with a sentence from a grammar:
 *     a red bag in the upper left corner
 *     an orange coat to the left of a blue boot
 * One in six combinations of colours, garments and places is held out: the pictures of OUT/test have those alone, with garments of the
 * test files, and the pictures of OUT/train never. The lists are OUT/train.tsv and OUT/test.tsv.
 *   cc -O2 -Iinclude bench/captions.c -o captions -L build -lbanyan -lm
 *   ./captions FASHION-MNIST-DIRECTORY OUT [TRAINING-PICTURES [TEST-PICTURES]] */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 64, GARMENT = 28, GARMENTS = 5, COLOURS = 8, PLACES = 5, RELATIONS = 2, HELD_OUT = 6 };

static const struct {
    const char *name;
    int label; /* of Fashion-MNIST */
} garments[GARMENTS] = {{"t-shirt", 0}, {"trouser", 1}, {"coat", 4}, {"bag", 8}, {"boot", 9}};

static const struct {
    const char *name;
    uint8_t rgb[3];
} colours[COLOURS] = {{"red", {225, 35, 35}},     {"green", {40, 170, 60}},   {"blue", {45, 75, 235}},
                      {"yellow", {240, 225, 50}}, {"purple", {150, 45, 195}}, {"orange", {245, 140, 25}},
                      {"white", {240, 240, 240}}, {"cyan", {40, 205, 215}}};

static const struct {
    const char *name;
    int x, y; /* of the upper left corner of the garment, before it is moved by up to 6 pixels */
} places[PLACES] = {{"in the upper left corner", 0, 0},
                    {"in the upper right corner", 30, 0},
                    {"in the lower left corner", 0, 30},
                    {"in the lower right corner", 30, 30},
                    {"in the middle", 15, 15}};

static const char *const relations[RELATIONS] = {"to the left of", "above"};

static uint64_t seed = 1;

static uint64_t mix(uint64_t z) /* splitmix64 (Steele et al. 2014) */
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int draw(int n)
{
    return (int)((mix(seed += 0x9e3779b97f4a7c15u) >> 33) % (uint64_t)n);
}

static void fail(const char *what)
{
    fprintf(stderr, "captions: %s: %s\n", what, by_error_message());
    exit(1);
}

/* ---- combinations -------------------------------------------------------------------------------- */

typedef struct scene {
    int count; /* garments: 1 or 2 */
    int colour[2], garment[2];
    int where; /* a place, or a relation */
} scene;

static scene random_scene(void)
{
    scene s = {.count = 1 + (draw(4) > 0)};
    for (int i = 0; i < s.count; i++) {
        s.colour[i] = draw(COLOURS);
        s.garment[i] = draw(GARMENTS);
    }
    s.where = draw(s.count == 1 ? PLACES : RELATIONS);
    return s;
}

static int is_held_out(const scene *s)
{
    uint64_t key = (uint64_t)s->count;
    for (int i = 0; i < 2; i++)
        key = (key * COLOURS + (uint64_t)s->colour[i]) * GARMENTS + (uint64_t)s->garment[i];
    return mix(key * PLACES + (uint64_t)s->where + 0x9e3779b97f4a7c15u) % HELD_OUT == 0;
}

static void put_thing(char *out, size_t size, const scene *s, int i)
{
    const char *colour = colours[s->colour[i]].name;
    snprintf(out, size, "%s %s %s", colour[0] == 'o' ? "an" : "a", colour, garments[s->garment[i]].name);
}

static void put_sentence(char *out, size_t size, const scene *s)
{
    char first[64], second[64];
    put_thing(first, sizeof first, s, 0);
    put_thing(second, sizeof second, s, 1);
    if (s->count == 1)
        snprintf(out, size, "%s %s", first, places[s->where].name);
    else
        snprintf(out, size, "%s %s %s", first, relations[s->where], second);
}

/* ---- pictures ------------------------------------------------------------------------------------ */

/* A random picture of a class. */
static by_image *random_garment(const by_picture_set *set, int label)
{
    int64_t i;
    do
        i = draw((int)by_picture_set_count(set));
    while (by_picture_set_label(set, i) != label);
    by_image *m = by_picture_set_get(set, i);
    if (!m)
        fail("garment");
    return m;
}

/* Light grey becomes the colour, dark grey a darker shade of it, black the background. Half of the garments are mirrored. */
static void paint(by_image *canvas, const by_image *garment, const uint8_t rgb[3], int left, int top)
{
    const int mirror = draw(2) ? GARMENT - 1 : 0;
    for (int y = 0; y < GARMENT; y++)
        for (int x = 0; x < GARMENT; x++) {
            const int grey = ((const uint8_t *)garment->pixels)[y * GARMENT + abs(mirror - x)];
            uint8_t *to = (uint8_t *)canvas->pixels + ((top + y) * SIDE + left + x) * 3;
            for (int c = 0; c < 3 && grey > 8; c++)
                to[c] = (uint8_t)(rgb[c] * (90 + grey * 165 / 255) / 255);
        }
}

static by_image *compose(const by_picture_set *set, const scene *s)
{
    by_image *canvas = by_image_new(SIDE, SIDE, BY_PIXELS_RGB);
    if (!canvas)
        fail("picture");
    const int shade = draw(40);
    memset(canvas->pixels, shade, SIDE * SIDE * 3);
    for (int i = 0; i < s->count; i++) {
        by_image *m = random_garment(set, garments[s->garment[i]].label);
        int x = draw(7), y = draw(7);
        if (s->count == 1) {
            x += places[s->where].x;
            y += places[s->where].y;
        } else if (s->where == 0) { /* side by side, at heights of their own */
            x = i * 32 + draw(5);
            y += 10 + draw(10);
        } else {
            x += 10 + draw(10);
            y = i * 32 + draw(5);
        }
        paint(canvas, m, colours[s->colour[i]].rgb, x, y);
        by_image_free(m);
    }
    return canvas;
}

static void make_set(const by_picture_set *set, const char *out, const char *part, int count, int held_out)
{
    char path[600], sentence[200];
    snprintf(path, sizeof path, "%s/%s", out, part);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s.tsv", out, part);
    FILE *list = fopen(path, "w");
    if (!list)
        fail(path);
    fprintf(list, "file\tcaption\n");
    for (int i = 0; i < count; i++) {
        scene s;
        do
            s = random_scene();
        while (is_held_out(&s) != held_out);
        by_image *m = compose(set, &s);
        snprintf(path, sizeof path, "%s/%s/%05d.png", out, part, i);
        if (by_image_write_png(m, path) != BY_OK)
            fail(path);
        put_sentence(sentence, sizeof sentence, &s);
        fprintf(list, "%s/%05d.png\t%s\n", part, i, sentence);
        by_image_free(m);
    }
    if (fclose(list) != 0)
        fail("list");
}

static by_picture_set *open_part(const char *dir, const char *part)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte.gz", dir, part);
    const char *paths[] = {path};
    by_picture_set *set = by_picture_set_open(
        paths, 1, &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE_CLASSIFY, .format = BY_PIXELS_GREY});
    if (!set)
        fail(path);
    return set;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: captions FASHION-MNIST-DIRECTORY OUT [TRAINING-PICTURES [TEST-PICTURES]]\n");
        return 2;
    }
    mkdir(argv[2], 0777);
    by_picture_set *train = open_part(argv[1], "train"), *test = open_part(argv[1], "t10k");
    make_set(train, argv[2], "train", argc > 3 ? atoi(argv[3]) : 20000, 0);
    make_set(test, argv[2], "test", argc > 4 ? atoi(argv[4]) : 1000, 1);
    by_picture_set_free(train);
    by_picture_set_free(test);
    return 0;
}
