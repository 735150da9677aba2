/* wgmma_emulate.cuh - wgmma.cuh on the CPU. */
#ifndef BY_CUDA_KERNELS_WGMMA_EMULATE_CUH
#define BY_CUDA_KERNELS_WGMMA_EMULATE_CUH

#include <stdio.h>
#include <vector>

static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)((const unsigned char *)p - cuda_emulated_now.shared);
}
static inline float exp2_fast(float x)
{
    return exp2f(x);
}

/* A matrix of rows of heads: (batch, heads, rows, cols) with strides in bytes; cols are contiguous. */
struct tile_map {
    const char *at;
    int64_t cols, rows, heads, batch, row, head, step;
    int box, pack;
};
static inline by_status tile_map_make(tile_map *m, const void *at, int64_t cols, int64_t rows, int64_t heads,
                                      int64_t batch, int64_t row, int64_t head, int64_t step, int box,
                                      int pack = 1)
{
    *m = tile_map{(const char *)at, cols, rows, heads, batch, row, head, step, box, pack};
    return BY_OK;
}

struct emulated_barrier {
    uint8_t count, pending, phase, unused;
    int32_t bytes;
};
/* Number of barrier polls since the last progress. */
static long emulated_looks;

static inline void barrier_settle(emulated_barrier *b)
{
    emulated_looks = 0;
    if (b->pending == 0 && b->bytes == 0) {
        b->phase ^= 1;
        b->pending = b->count;
    }
}
static inline void barrier_init(uint64_t *bar, int count)
{
    *(emulated_barrier *)bar = emulated_barrier{(uint8_t)count, (uint8_t)count, 0, 0, 0};
}
static inline void barrier_fence()
{
}
static inline void barrier_arrive(uint64_t *bar)
{
    emulated_barrier *b = (emulated_barrier *)bar;
    if (b->pending == 0)
        abort();
    b->pending--;
    barrier_settle(b);
}
static inline void barrier_expect(uint64_t *bar, int bytes)
{
    ((emulated_barrier *)bar)->bytes += bytes;
    barrier_arrive(bar);
}
static inline void barrier_wait(uint64_t *bar, int parity)
{
    while (((emulated_barrier *)bar)->phase == parity) {
        if (++emulated_looks > 100000) {
            fprintf(stderr, "emulated kernel: threads wait for each other's barriers\n");
            abort();
        }
        cuda_emulated_yield();
    }
}
static inline void barrier_count_bytes(uint64_t *bar, int bytes)
{
    emulated_barrier *b = (emulated_barrier *)bar;
    b->bytes -= bytes;
    barrier_settle(b);
}

static inline void load_tile(void *to, const tile_map *m, uint64_t *bar, int col, int row, int head, int step)
{
    const uint32_t base = shared_address(to);
    for (int r = 0; r < m->box; r++) {
        for (int i = 0; i < TILE_ROW / 2; i++) {
            uint32_t plain = base + (uint32_t)(r * TILE_ROW + 2 * i);
            uint16_t value = 0;
            const int64_t h = head + r % m->pack, t = row + r / m->pack;
            if (t < m->rows && h < m->heads)
                memcpy(&value, m->at + step * m->step + h * m->head + t * m->row + 2 * (col + i), 2);
            memcpy(cuda_emulated_now.shared + (plain ^ (plain >> 7 & 7) << 4), &value, 2);
        }
    }
    barrier_count_bytes(bar, m->box * TILE_ROW);
}
static inline void load_bytes(void *to, const void *from, int bytes, uint64_t *bar)
{
    memcpy(to, from, (size_t)bytes);
    barrier_count_bytes(bar, bytes);
}
static inline void store_bytes(void *to, const void *from, int bytes, uint64_t)
{
    memcpy(to, from, (size_t)bytes);
}
static inline void add_bytes(float4 *to, const void *from, int bytes, uint64_t)
{
    for (int i = 0; i < bytes / 4; i++)
        ((float *)to)[i] += ((const float *)from)[i];
}
static inline void bytes_read()
{
}
static inline void bytes_wait()
{
}
static inline int count_get(const int *count)
{
    return *(const volatile int *)count;
}
static inline void count_set(int *count, int value)
{
    *count = value;
}

/* Products are computed when they are waited for, so that a missing wait is detected. */
struct emulated_group {
    std::vector<std::function<void()>> products;
};
static inline std::vector<emulated_group> &emulated_groups()
{
    static std::vector<emulated_group> all[1024];
    std::vector<emulated_group> &mine = all[cuda_emulated_now.index];
    if (mine.empty())
        mine.emplace_back(); /* the one that is not committed yet */
    return mine;
}

static inline uint16_t emulated_word(uint32_t plain)
{
    uint16_t value;
    memcpy(&value, cuda_emulated_now.shared + (plain ^ (plain >> 7 & 7) << 4), 2);
    return value;
}
/* Element (k, n) of an operand: rows (n, k), or transposed (k, n). */
template <class T> static inline float emulated_element(uint64_t operand, bool turned, int k, int n)
{
    const uint32_t base = (uint32_t)(operand & 0x3fff) << 4;
    const uint32_t lead = (uint32_t)(operand >> 16 & 0x3fff) << 4, stride = (uint32_t)(operand >> 32 & 0x3fff)
                                                                            << 4;
    const uint32_t at = turned ? base + n / 64 * lead + n % 64 * 2 + k / 8 * stride + k % 8 * 128
                               : base + n / 8 * stride + n % 8 * 128 + k * 2;
    return to_float(T{emulated_word(at)});
}

template <class T, int N, bool TURNED>
static inline void emulated_product(float *d, const float a[2][16], uint64_t b, bool add)
{
    const int c = cuda_emulated_now.lane % 4;
    for (int i = 0; i < N / 2; i++) {
        const int col = i / 4 * 8 + 2 * c + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; k++)
            sum += a[i / 2 % 2][k] * emulated_element<T>(b, TURNED, k, col);
        d[i] = add ? d[i] + sum : sum;
    }
}

template <class T, int N, bool TURNED>
static inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add)
{
    float *to = d;
    const uint32_t *from = a;
    emulated_groups().back().products.push_back([to, from, b, add] {
        cuda_emulated_show(from, 4 * sizeof(uint32_t));
        const int g = cuda_emulated_now.lane / 4;
        float rows[2][16];
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 16; k++) {
                const uint32_t *word = (const uint32_t *)cuda_emulated_slot(g * 4 + k % 8 / 2);
                rows[i][k] = cuda_emulated_half<T>(word[i + 2 * (k / 8)], k % 2);
            }
        emulated_product<T, N, TURNED>(to, rows, b, add);
    });
}
template <class T, int N, bool TURNED, bool A_TURNED = false>
static inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
{
    float *to = d;
    emulated_groups().back().products.push_back([to, a, b, add] {
        const int row = cuda_emulated_now.warp % 4 * 16 + cuda_emulated_now.lane / 4;
        float rows[2][16];
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 16; k++)
                rows[i][k] = emulated_element<T>(a, A_TURNED, k, row + 8 * i);
        emulated_product<T, N, TURNED>(to, rows, b, add);
    });
}
static inline void written_fence()
{
}
static inline void stmatrix4(void *row, const uint32_t (&r)[4])
{
    const int lane = cuda_emulated_now.lane;
    cuda_emulated_show(&row, sizeof row);
    for (int m = 0; m < 4; m++) {
        unsigned char *at = *(unsigned char *const *)cuda_emulated_slot(8 * m + lane / 4);
        memcpy(at + lane % 4 * 4, &r[m], 4);
    }
    __syncwarp();
}
static inline uint64_t keep_in_cache()
{
    return 0;
}
static inline void put_in_memory(float4 *at, const float *v, uint64_t)
{
    *at = float4{v[0], v[1], v[2], v[3]};
}
static inline void add_to_memory(float4 *at, const float *v, uint64_t)
{
    *at = float4{at->x + v[0], at->y + v[1], at->z + v[2], at->w + v[3]};
}
static inline void wgmma_fence()
{
}
static inline void wgmma_commit()
{
    emulated_groups().emplace_back();
}
template <int LEFT> static inline void wgmma_wait()
{
    std::vector<emulated_group> &all = emulated_groups();
    while ((int)all.size() > LEFT + 1) {
        emulated_group first = all.front();
        all.erase(all.begin());
        for (auto &product : first.products)
            product();
    }
}
template <int N> static inline void hold(float (&)[N])
{
}
template <int N> static inline void hold(uint32_t (&)[N][4])
{
}
/* Nothing but speed depends on turns. */
static inline void turn_wait(int)
{
}
static inline void turn_give(int)
{
}
template <int COUNT> static inline void registers_up()
{
}
template <int COUNT> static inline void registers_down()
{
}

#endif
