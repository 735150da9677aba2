/* png.h - PNG files with a palette, compressed by runs; and the glyphs for text in them. */
#ifndef BY_REPORT_PNG_H
#define BY_REPORT_PNG_H

#include "base/base.h"

/* Append a file of (height, width) pixels, indices into `colours` of red, green and blue. */
void report_png_put(base_buf *out, const uint8_t *pixels, int width, int height, const uint8_t (*palette)[3],
                    int colours);

/* The glyph of the character at *text, which moves to the next: nine rows of five bits, the topmost row in
 * the highest bits; two rows lie below the baseline. */
uint64_t report_glyph(const char **text);

#endif
