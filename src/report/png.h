/* png.h - PNG files with a palette, compressed as runs; and glyphs for text in them. */
#ifndef BY_REPORT_PNG_H
#define BY_REPORT_PNG_H

#include "base/base.h"

/* Appends a file of (height, width) pixels, which are indices into `palette`: red, green and blue of
 * `colours` entries. */
void report_png_put(base_buf *out, const uint8_t *pixels, int width, int height, const uint8_t (*palette)[3],
                    int colours);

/* Returns the glyph of the character at *text and advances *text. A glyph has nine rows of five bits, the top
 * row in the highest bits; two rows are below the baseline. */
uint64_t report_glyph(const char **text);

#endif
