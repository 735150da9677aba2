/* png.c - see png.h. Each row is stored as its difference to the row above, and the bytes are compressed as
 * runs with the fixed codes of DEFLATE (RFC 1951): flat pictures become small without a dictionary. */
#include "report/png.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

static void put_u32(base_buf *b, uint32_t x)
{
    char bytes[4] = {(char)(x >> 24), (char)(x >> 16), (char)(x >> 8), (char)x};
    base_buf_put(b, bytes, 4);
}

static uint32_t crc_of(const char *data, size_t size)
{
    uint32_t table[256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ (uint8_t)data[i]) & 255];
    return ~crc;
}

static void put_chunk(base_buf *png, const char *type, const base_buf *body)
{
    size_t start = png->size + 4;
    put_u32(png, (uint32_t)body->size);
    base_buf_put(png, type, 4);
    if (body->size)
        base_buf_put(png, body->data, body->size);
    put_u32(png, png->failed ? 0 : crc_of(png->data + start, png->size - start));
}

/* ---- DEFLATE --------------------------------------------------------------------------------- */

typedef struct bits {
    base_buf *out;
    uint32_t held, count;
} bits;

static void put_bits(bits *b, uint32_t value, int n) /* lowest bit first */
{
    b->held |= value << b->count;
    for (b->count += (uint32_t)n; b->count >= 8; b->count -= 8) {
        base_buf_put(b->out, (char[]){(char)b->held}, 1);
        b->held >>= 8;
    }
}

static void put_code(bits *b, uint32_t code, int n) /* highest bit first */
{
    for (int i = n - 1; i >= 0; i--)
        put_bits(b, code >> i & 1, 1);
}

/* Writes a literal byte, the end of block (256), or the code of a length. */
static void put_symbol(bits *b, int s)
{
    if (s < 144)
        put_code(b, 48 + (uint32_t)s, 8);
    else if (s < 256)
        put_code(b, 400 + (uint32_t)s - 144, 9);
    else if (s < 280)
        put_code(b, (uint32_t)s - 256, 7);
    else
        put_code(b, 192 + (uint32_t)s - 280, 8);
}

/* Repeats the last byte n times, n from 3 to 258. */
static void put_run(bits *b, int n)
{
    static const uint16_t least[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                     31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    int k = BY_COUNT(least) - 1;
    while (least[k] > n)
        k--;
    put_symbol(b, 257 + k);
    const int extra = k < 8 || k == 28 ? 0 : (k - 4) / 4;
    put_bits(b, (uint32_t)(n - least[k]), extra);
    put_code(b, 0, 5); /* distance 1 */
}

static void put_zlib(base_buf *out, const uint8_t *raw, size_t size)
{
    bits b = {.out = out};
    uint32_t low = 1, high = 0;
    base_buf_put(out, "\x78\x01", 2);
    put_bits(&b, 3, 3); /* last block, with fixed codes */
    for (size_t at = 0; at < size;) {
        size_t n = 1;
        while (at + n < size && raw[at + n] == raw[at])
            n++;
        put_symbol(&b, raw[at]);
        for (size_t left = n - 1; left > 0;) {
            size_t run = BY_MIN(left, (size_t)258);
            if (run >= 3)
                put_run(&b, (int)run);
            else
                for (size_t i = 0; i < run; i++)
                    put_symbol(&b, raw[at]);
            left -= run;
        }
        at += n;
    }
    put_symbol(&b, 256);
    put_bits(&b, 0, 7); /* complete the last byte */
    for (size_t i = 0; i < size; i++) {
        low = (low + raw[i]) % 65521;
        high = (high + low) % 65521;
    }
    put_u32(out, high << 16 | low);
}

void report_png_put(base_buf *out, const uint8_t *pixels, int width, int height, const uint8_t (*palette)[3],
                    int colours)
{
    enum { UP = 2 };
    const size_t w = (size_t)width, h = (size_t)height;
    base_buf head = {0}, colour = {0}, body = {0}, none = {0};
    uint8_t *raw = base_alloc_zero(h, w + 1);
    for (size_t y = 0; raw && y < h; y++) {
        uint8_t *to = raw + y * (w + 1);
        *to++ = UP;
        for (size_t x = 0; x < w; x++)
            to[x] = (uint8_t)(pixels[y * w + x] - (y ? pixels[(y - 1) * w + x] : 0));
    }
    put_u32(&head, (uint32_t)width);
    put_u32(&head, (uint32_t)height);
    base_buf_put(&head, "\x08\x03\x00\x00\x00", 5); /* eight bits per pixel, with a palette */
    base_buf_put(&colour, (const char *)palette, (size_t)colours * 3);
    if (raw)
        put_zlib(&body, raw, h * (w + 1));
    base_buf_put(out, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(out, "IHDR", &head);
    put_chunk(out, "PLTE", &colour);
    put_chunk(out, "IDAT", &body);
    put_chunk(out, "IEND", &none);
    out->failed |= !raw || head.failed || colour.failed || body.failed;
    base_buf_free(&head);
    base_buf_free(&colour);
    base_buf_free(&body);
    base_free(raw);
}

/* ---- glyphs ---------------------------------------------------------------------------------- */

enum { BOX = 95, ARROW, DOTS, RETURN };

/* ASCII from the space on, then the four above. */
static const uint64_t glyphs[] = {
    0x000000000000, 0x042108401000, 0x0a5280000000, 0x0a57d5f52800, 0x047d1c5f1000, 0x18c888898c00,
    0x0c9511593400, 0x042100000000, 0x022210820800, 0x082084222000, 0x00255d520000, 0x00213e420000,
    0x000000061100, 0x00003e000000, 0x000000063000, 0x010888884000, 0x0e8ceb98b800, 0x046108423800,
    0x0e8844447c00, 0x1f110418b800, 0x0232a5f10800, 0x1f878218b800, 0x06443d18b800, 0x1f0888842000,
    0x0e8c5d18b800, 0x0e8c5e113000, 0x006300c60000, 0x006300061100, 0x022220820800, 0x0007c1f00000,
    0x082082222000, 0x0e8844401000, 0x0e885b5ab800, 0x0e8c7f18c400, 0x1e8c7d18f800, 0x0e8c2108b800,
    0x1c9463197000, 0x1f843d087c00, 0x1f843d084000, 0x0e8c2f18bc00, 0x118c7f18c400, 0x0e2108423800,
    0x071084293000, 0x119531494400, 0x108421087c00, 0x11dd6b18c400, 0x118e6b38c400, 0x0e8c6318b800,
    0x1e8c7d084000, 0x0e8c63593400, 0x1e8c7d494400, 0x0f841c10f800, 0x1f2108421000, 0x118c6318b800,
    0x118c63151000, 0x118c6b5aa800, 0x118a88a8c400, 0x118c54421000, 0x1f0888887c00, 0x0e4210843800,
    0x108208208400, 0x0e1084213800, 0x045440000000, 0x0000000003e0, 0x082080000000, 0x000382f8bc00,
    0x1085b318f800, 0x0003a108b800, 0x010b6718bc00, 0x0003a3f83800, 0x064a38842000, 0x0003e318bc2e,
    0x1085b318c400, 0x040308423800, 0x020184210a4c, 0x1084a98a4800, 0x0c2108423800, 0x0006ab58c400,
    0x0005b318c400, 0x0003a318b800, 0x0007a318fa10, 0x0003e318bc21, 0x0005b3084000, 0x0003a0e0f800,
    0x084710849800, 0x00046319b400, 0x000463151000, 0x0004635aa800, 0x000454454400, 0x00046318bc2e,
    0x0007c4447c00, 0x022110420800, 0x042108421000, 0x082104422000, 0x00022a200000, 0x1f8c6318fc00,
    0x0020be220000, 0x000000005400, 0x010953f41000};

static uint32_t next_character(const char **text)
{
    const uint8_t *s = (const uint8_t *)*text;
    int more = *s < 0x80 ? 0 : *s >= 0xf0 ? 3 : *s >= 0xe0 ? 2 : 1;
    uint32_t c = more == 0 ? *s : *s & (0x3fu >> more);
    for (s++; more > 0 && (*s & 0xc0) == 0x80; more--)
        c = c << 6 | (*s++ & 0x3f);
    *text = (const char *)s;
    return c;
}

uint64_t report_glyph(const char **text)
{
    static const char plain[] = "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty";
    uint32_t c = next_character(text);
    if (c >= 0xc0 && c <= 0xff)
        c = (uint8_t)plain[c - 0xc0];
    switch (c) {
    case '\n':
        return glyphs[RETURN];
    case '\t':
    case 0x2192:
        return glyphs[ARROW];
    case 0xa0:
        return glyphs[0];
    case 0x2018:
    case 0x2019:
        return glyphs['\'' - ' '];
    case 0x201c:
    case 0x201d:
        return glyphs['"' - ' '];
    case 0x2013:
    case 0x2014:
        return glyphs['-' - ' '];
    case 0x2026:
        return glyphs[DOTS];
    case 0x21b5:
        return glyphs[RETURN];
    case 0x2581:
        return glyphs['_' - ' '];
    default:
        return glyphs[c >= ' ' && c <= '~' ? c - ' ' : BOX];
    }
}
