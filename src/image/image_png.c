/* image_png.c - PNG with libpng. Chunks that do not affect the pixels are skipped without being inflated, so
 * that a small file with megabytes of compressed text costs nothing. */
#ifdef BY_HAVE_PNG
#include <png.h>
#include <setjmp.h>

#include "base/file.h"
#include "image/picture.h"

/* State that survives a longjmp out of libpng. */
typedef struct png_job {
    const image_source *source;
    size_t at;
    png_structp png;
    png_infop info;
    by_image *image;
    png_bytep *rows;
    jmp_buf error;
} png_job;

static void fail(png_structp png, png_const_charp message)
{
    png_job *j = png_get_error_ptr(png);
    if (base_error_status() == BY_OK)
        base_fail(BY_ERR_FORMAT, "%s", message);
    longjmp(j->error, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep out, size_t n)
{
    png_job *j = png_get_io_ptr(png);
    if (n > j->source->size - j->at)
        png_error(png, "the file is truncated");
    memcpy(out, j->source->bytes + j->at, n);
    j->at += n;
}

static png_voidp take(png_structp png, png_alloc_size_t n)
{
    (void)png;
    return base_alloc(n);
}

static void give(png_structp png, png_voidp p)
{
    (void)png;
    base_free(p);
}

/* Skips all chunks except IHDR, PLTE, tRNS, IDAT and IEND, which determine the pixels, and eXIf, which is
 * small. */
static void skip_other_chunks(png_structp png)
{
    static const png_byte names[] = "bKGD\0cHRM\0cICP\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0"
                                    "sPLT\0sRGB\0sTER\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, (int)(sizeof names / 5));
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
}

/* Whether a transparent colour becomes alpha. For grey pictures of 2 or 4 bits, Pillow compares the key with
 * samples already scaled to bytes, so that only black can be transparent. The results must match. */
static bool applies_key(const png_job *j, int colour, int depth)
{
    png_color_16p key;
    if (!j->source->alpha || !png_get_valid(j->png, j->info, PNG_INFO_tRNS))
        return false;
    png_get_tRNS(j->png, j->info, NULL, NULL, &key);
    return colour != PNG_COLOR_TYPE_GRAY || depth >= 8 || depth == 1 || key->gray == 0;
}

static by_pixels native_format(const png_job *j, int colour, int depth)
{
    const bool key = applies_key(j, colour, depth);
    if (colour == PNG_COLOR_TYPE_GRAY)
        return key ? BY_PIXELS_GREY_ALPHA : depth == 16 ? BY_PIXELS_GREY16 : BY_PIXELS_GREY;
    if (colour == PNG_COLOR_TYPE_GRAY_ALPHA)
        return BY_PIXELS_GREY_ALPHA;
    return key || colour == PNG_COLOR_TYPE_RGB_ALPHA ? BY_PIXELS_RGBA : BY_PIXELS_RGB;
}

/* Sets libpng to output bytes: palettes as colours, small depths expanded, the high byte of 16 bits. */
static void set_transforms(png_job *j, int colour, int depth, by_pixels format)
{
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(j->png);
    if (colour == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(j->png);
    if (applies_key(j, colour, depth))
        png_set_tRNS_to_alpha(j->png);
    if (depth == 16 && format != BY_PIXELS_GREY16)
        png_set_strip_16(j->png);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (format == BY_PIXELS_GREY16)
        png_set_swap(j->png);
#endif
    if (!j->source->alpha && colour == PNG_COLOR_TYPE_PALETTE &&
        png_get_valid(j->png, j->info, PNG_INFO_tRNS))
        png_set_strip_alpha(j->png);
    png_set_interlace_handling(j->png);
}

static int orientation_of(png_job *j)
{
#ifdef PNG_eXIf_SUPPORTED
    png_bytep exif;
    png_uint_32 size;
    if (png_get_eXIf_1(j->png, j->info, &size, &exif))
        return image_exif_orientation(exif, size);
#endif
    return 1;
}

static void read_picture(png_job *j)
{
    png_read_info(j->png, j->info);
    const png_uint_32 width = png_get_image_width(j->png, j->info);
    const png_uint_32 height = png_get_image_height(j->png, j->info);
    const int colour = png_get_color_type(j->png, j->info), depth = png_get_bit_depth(j->png, j->info);
    const by_pixels format = native_format(j, colour, depth);
    if (image_check_size(width, height, j->source->max_pixels) != BY_OK)
        png_error(j->png, "size");
    set_transforms(j, colour, depth, format);
    png_read_update_info(j->png, j->info);
    j->image = by_image_new((int)width, (int)height, format);
    j->rows = base_alloc_zero(height, sizeof *j->rows);
    if (!j->image || !j->rows)
        png_error(j->png, "memory");
    const size_t row = (size_t)width * (size_t)j->image->channels * image_sample_bytes(format);
    if (png_get_rowbytes(j->png, j->info) != row)
        png_error(j->png, "the rows have an unexpected length");
    for (png_uint_32 y = 0; y < height; y++)
        j->rows[y] = image_row(j->image, (int)y);
    png_read_image(j->png, j->rows);
    j->image->orientation = orientation_of(j);
}

by_image *image_png_decode(const image_source *s)
{
    png_job j = {.source = s};
    base_error_clear();
    j.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &j, fail, ignore, NULL, take, give);
    if (!j.png)
        return NULL;
    if (setjmp(j.error) == 0) {
        if (!(j.info = png_create_info_struct(j.png)))
            png_error(j.png, "memory");
        png_set_user_limits(j.png, INT32_MAX, INT32_MAX);
        skip_other_chunks(j.png);
        png_set_read_fn(j.png, &j, read_bytes);
        read_picture(&j);
    } else {
        by_image_free(j.image);
        j.image = NULL;
    }
    base_free(j.rows);
    png_destroy_read_struct(&j.png, &j.info, NULL);
    return j.image;
}

/* ---- writing ------------------------------------------------------------------------------------ */

typedef struct png_out {
    base_buf bytes;
    png_structp png;
    png_infop info;
    jmp_buf error;
} png_out;

static void fail_out(png_structp png, png_const_charp message)
{
    png_out *o = png_get_error_ptr(png);
    if (base_error_status() == BY_OK)
        base_fail(BY_ERR_ARGUMENT, "png: %s", message);
    longjmp(o->error, 1);
}

static void write_bytes(png_structp png, png_bytep bytes, size_t n)
{
    png_out *o = png_get_io_ptr(png);
    base_buf_put(&o->bytes, bytes, n);
    if (o->bytes.failed)
        png_error(png, "memory");
}

static void write_picture(png_out *o, const by_image *m, int colour)
{
    if (!(o->info = png_create_info_struct(o->png)))
        png_error(o->png, "memory");
    png_set_write_fn(o->png, o, write_bytes, NULL);
    png_set_IHDR(o->png, o->info, (png_uint_32)m->width, (png_uint_32)m->height, 8, colour,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(o->png, o->info);
    for (int y = 0; y < m->height; y++)
        png_write_row(o->png, image_row(m, y));
    png_write_end(o->png, NULL);
}

by_status image_png_encode(const by_image *m, base_buf *out)
{
    static const int colours[] = {[BY_PIXELS_RGB] = PNG_COLOR_TYPE_RGB,
                                  [BY_PIXELS_GREY] = PNG_COLOR_TYPE_GRAY,
                                  [BY_PIXELS_GREY_ALPHA] = PNG_COLOR_TYPE_GRAY_ALPHA,
                                  [BY_PIXELS_RGBA] = PNG_COLOR_TYPE_RGB_ALPHA};
    png_out o = {.bytes = *out};
    if (m->format == BY_PIXELS_CMYK || m->format == BY_PIXELS_GREY16)
        return base_fail(BY_ERR_ARGUMENT, "PNG files are written from 8-bit grey or RGB");
    base_error_clear();
    o.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &o, fail_out, ignore, NULL, take, give);
    if (!o.png)
        return BY_ERR_MEMORY;
    if (setjmp(o.error) == 0)
        write_picture(&o, m, colours[m->format]);
    png_destroy_write_struct(&o.png, &o.info);
    *out = o.bytes;
    return base_error_status();
}

#else
#include "image/picture.h"

by_status image_png_encode(const by_image *m, base_buf *out)
{
    (void)m, (void)out;
    return base_fail(BY_ERR_UNSUPPORTED, "this build does not write PNG files; it needs libpng-dev");
}
#endif

by_status by_image_write_png(const by_image *m, const char *path)
{
    if (!m || !path)
        return base_fail_missing(m ? "path" : "picture");
    base_buf bytes = {0};
    by_status s = image_png_encode(m, &bytes);
    if (s == BY_OK)
        s = base_file_write(path, bytes.data, bytes.size);
    base_buf_free(&bytes);
    return s;
}
