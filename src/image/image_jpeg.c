/* image_jpeg.c - JPEG with libjpeg-turbo: the accurate integer transform and triangular chroma upsampling,
 * which are its defaults and Pillow's. */
#ifdef BY_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#include "image/picture.h"

enum { MAX_SCANS = 1000 }; /* scans of a progressive file; real files have about ten */

/* State that survives a longjmp out of libjpeg. */
typedef struct jpeg_job {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const image_source *source;
    by_image *image;
    jmp_buf error;
} jpeg_job;

static void fail(j_common_ptr jpeg)
{
    jpeg_job *j = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    if (base_error_status() == BY_OK) {
        jpeg->err->format_message(jpeg, text);
        base_fail(jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? BY_ERR_MEMORY : BY_ERR_FORMAT, "%s", text);
    }
    longjmp(j->error, 1);
}

/* A truncated file is an error, because libjpeg would fill it with grey. Other damage that libjpeg repairs is
 * accepted. */
static void hear(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    jpeg->err->num_warnings++;
    if (jpeg->err->msg_code == JWRN_JPEG_EOF) {
        base_fail(BY_ERR_FORMAT, "the file is truncated");
        fail(jpeg);
    }
}

static void count_scans(j_common_ptr jpeg)
{
    if (((j_decompress_ptr)jpeg)->input_scan_number <= MAX_SCANS)
        return;
    base_fail(BY_ERR_FORMAT, "the file has more than %d scans", MAX_SCANS);
    fail(jpeg);
}

static by_pixels choose_format(struct jpeg_decompress_struct *d)
{
    if (d->num_components == 1) {
        d->out_color_space = JCS_GRAYSCALE;
        return BY_PIXELS_GREY;
    }
    if (d->num_components == 4) {
        d->out_color_space = JCS_CMYK;
        return BY_PIXELS_CMYK;
    }
    d->out_color_space = JCS_RGB;
    return BY_PIXELS_RGB;
}

static int orientation_of(const struct jpeg_decompress_struct *d)
{
    for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next)
        if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0)
            return image_exif_orientation(m->data + 6, m->data_length - 6);
    return 1;
}

static void read_picture(jpeg_job *j)
{
    struct jpeg_decompress_struct *d = &j->jpeg;
    jpeg_mem_src(d, j->source->bytes, (unsigned long)j->source->size);
    jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(d, TRUE);
    if (image_check_size(d->image_width, d->image_height, j->source->max_pixels) != BY_OK)
        fail((j_common_ptr)d);
    const by_pixels format = choose_format(d);
    jpeg_start_decompress(d);
    j->image = by_image_new((int)d->output_width, (int)d->output_height, format);
    if (!j->image || d->output_components != j->image->channels)
        fail((j_common_ptr)d);
    while (d->output_scanline < d->output_height) {
        JSAMPROW row = image_row(j->image, (int)d->output_scanline);
        jpeg_read_scanlines(d, &row, 1);
    }
    j->image->orientation = orientation_of(d); /* before finishing, which discards the markers */
    jpeg_finish_decompress(d);
}

/* Files with four components follow Adobe's convention: 255 is no ink. */
static void invert(by_image *m)
{
    uint8_t *p = m->pixels;
    const size_t count = (size_t)m->width * (size_t)m->height * 4;
    for (size_t i = 0; m->format == BY_PIXELS_CMYK && i < count; i++)
        p[i] = (uint8_t)(255 - p[i]);
}

by_image *image_jpeg_decode(const image_source *s)
{
    jpeg_job *j = base_alloc_zero(1, sizeof *j);
    if (!j)
        return NULL;
    base_error_clear();
    j->source = s;
    j->jpeg.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = fail;
    j->errors.emit_message = hear;
    j->progress.progress_monitor = count_scans;
    j->jpeg.client_data = j;
    if (setjmp(j->error) == 0) {
        jpeg_create_decompress(&j->jpeg);
        j->jpeg.client_data = j;
        j->jpeg.progress = &j->progress;
        read_picture(j);
        invert(j->image);
    } else {
        by_image_free(j->image);
        j->image = NULL;
    }
    jpeg_destroy_decompress(&j->jpeg);
    by_image *m = j->image;
    base_free(j);
    return m;
}
#endif
