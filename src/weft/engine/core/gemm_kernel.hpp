// The kernel of matrix products: a few rows times a packed weight.
//
// The weight is packed into panels of kPanel columns, in the order in which the kernel reads them. The kernel holds a
// block of R rows x kPanelVectors vectors of sums in registers. The sums start from values that the caller chooses (the
// projected input, a bias, C itself, or zero), so nothing is copied or cleared beforehand.
#pragma once

#include <utility>

#include "vector.hpp"

namespace weft {

constexpr int kPanelVectors = 2;
#if defined(__AVX512F__)
constexpr int kTileRows = 8;  // 16 of 32 registers hold sums; 8 rows divide most batches
#else
constexpr int kTileRows = 6;  // 12 of 16
#endif
template <typename T>
constexpr int kPanel = kPanelVectors* kWidth<T>;
constexpr int64_t kPanelAhead = 32;  // depths to prefetch: a whole weight seldom fits into the second-level cache

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

template <typename T>
struct Where {  // rows in memory: row r is at base + index[r] * stride
    T* base;
    int64_t stride;
    const int64_t* index;  // nullptr: the row number itself; stride 0: the same for all rows
    T* row(int64_t r) const { return base + (index ? index[r] : r) * stride; }
};

// Keeps a vector in a register: the compiler would reload it for each of a few rows.
template <typename V>
inline void hold(V& vector) {
#if defined(__AVX512F__)
    asm("" : "+v"(vector));
#elif defined(__AVX__)
    asm("" : "+x"(vector));
#else
    (void)vector;
#endif
}

// The initial sums of products that start at zero.
template <typename T>
alignas(64) constexpr T kZeros[kPanel<T>] = {};

// A (R, depth) with rows `stride` apart or, if Packed, with R elements for each depth. `start` points to the initial
// sums of each row. V is the number of vectors of the panel's columns that are computed.
template <typename T, int R, bool Packed, int V>
inline void kernel(const T* a, int64_t stride, const T* panel, int64_t depth, const T* const* start, T* c,
                   int64_t c_stride) {
    Vec<T> sum[R][V];
#pragma GCC unroll 8  // otherwise the sums go through memory
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sum[r][v] = load(start[r] + v * kWidth<T>);
    for (int64_t k = 0; k < depth; ++k, panel += kPanel<T>) {
        Vec<T> b[V];
        for (int v = 0; v < V; ++v) {
            b[v] = load(panel + v * kWidth<T>);
            if constexpr (R < 4) hold(b[v]);
        }
        for (int v = 0; v < V; ++v) __builtin_prefetch(panel + kPanelAhead * kPanel<T> + v * kWidth<T>);
        for (int r = 0; r < R; ++r) {
            const T factor = Packed ? a[k * R + r] : a[r * stride + k];
            for (int v = 0; v < V; ++v) sum[r][v] += factor * b[v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) store(c + r * c_stride + v * kWidth<T>, sum[r][v]);
}

template <typename T, bool Packed, int V = kPanelVectors, int R = kTileRows>
inline void kernel_of(int64_t rows, const T* a, int64_t stride, const T* panel, int64_t depth, const T* const* start,
                      T* c, int64_t c_stride) {
    if (rows == R) return kernel<T, R, Packed, V>(a, stride, panel, depth, start, c, c_stride);
    if constexpr (R > 1) kernel_of<T, Packed, V, R - 1>(rows, a, stride, panel, depth, start, c, c_stride);
}

// One row has too few sums in a panel to hide latency: kTogether panels at once, with the same results.
constexpr int kTogether = 4;
template <typename T, typename Start>
inline void kernel_of_row(const T* a, const T* panels, int64_t depth, int64_t n, const Start& start, T* c) {
    Vec<T> sum[kTogether][kPanelVectors];
    for (int p = 0; p < kTogether; ++p) {
        const Where<const T> where = start(n + p * kPanel<T>);
        for (int v = 0; v < kPanelVectors; ++v) sum[p][v] = where.base ? load(where.row(0) + v * kWidth<T>) : Vec<T>{};
    }
    for (int64_t k = 0; k < depth; ++k, panels += kPanel<T>)
        for (int p = 0; p < kTogether; ++p)
            for (int v = 0; v < kPanelVectors; ++v) {
                const T* b = panels + p * depth * kPanel<T> + v * kWidth<T>;
                sum[p][v] += a[k] * load(b);
            }
    for (int p = 0; p < kTogether; ++p)
        for (int v = 0; v < kPanelVectors; ++v) store(c + p * kPanel<T> + v * kWidth<T>, sum[p][v]);
}

inline int64_t tiles(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// C (rows x columns) = start + A (rows x depth) B, with B packed. Columns are those of the panels, padding included.
// start(n) gives the initial sums of the panel of column n; no base: zero. meanwhile() is called once for each of the
// tiles(rows) * columns / kPanel blocks: a place for prefetches.
template <typename T, typename Start, typename Meanwhile>
void multiply(int64_t rows, const T* a, int64_t a_stride, const T* packed, int64_t depth, int64_t columns, T* c,
              int64_t c_stride, const Start& start, const Meanwhile& meanwhile) {
    int64_t n = 0;
    for (; rows == 1 && n + kTogether * kPanel<T> <= columns; n += kTogether * kPanel<T>) {
        for (int p = 0; p < kTogether; ++p) meanwhile();
        kernel_of_row(a, packed + n * depth, depth, n, start, c + n);
    }
    for (; n < columns; n += kPanel<T>) {
        Where<const T> where = start(n);
        if (!where.base) where = {kZeros<T>, 0, nullptr};
        for (int64_t i = 0; i < tiles(rows); ++i) {  // rows are divided evenly: 9 as 5 + 4, not 8 + 1
            const int64_t from = rows * i / tiles(rows), to = rows * (i + 1) / tiles(rows);
            const T* begin[kTileRows];
            for (int64_t r = from; r < to; ++r) begin[r - from] = where.row(r);
            meanwhile();
            kernel_of<T, false>(to - from, a + from * a_stride, a_stride, packed + n * depth, depth, begin,
                                c + from * c_stride + n, c_stride);
        }
    }
}

// One block of a weight: (H, H) at `data`, or its transpose.
template <typename T>
struct WeightBlock {
    const T* data;
    int64_t stride;
    bool transposed;
};

// Transposes a square of kWidth vectors: at distance S, each pair of vectors exchanges half of its lanes.
template <typename T, int S, int... Lane>
inline void exchange_lanes(Vec<T>* rows, std::integer_sequence<int, Lane...> lanes) {
    constexpr int W = kWidth<T>;
    for (int i = 0; i < W; ++i)
        if (!(i & S)) {
            const Vec<T> a = rows[i], b = rows[i + S];
#if defined(__clang__)
            rows[i] = __builtin_shufflevector(a, b, (Lane & S ? W + Lane - S : Lane)...);
            rows[i + S] = __builtin_shufflevector(a, b, (Lane & S ? W + Lane : Lane + S)...);
#else
            rows[i] = __builtin_shuffle(a, b, Ints<T>{(Lane & S ? W + Lane - S : Lane)...});
            rows[i + S] = __builtin_shuffle(a, b, Ints<T>{(Lane & S ? W + Lane : Lane + S)...});
#endif
        }
    if constexpr (2 * S < W) exchange_lanes<T, 2 * S>(rows, lanes);
}

// Makes row j of a matrix column j of a panel, for rows `first` to `last`, by squares of vectors.
template <typename T>
void transpose_into_panel(const T* from, int64_t stride, int64_t depth, int64_t first, int64_t last, T* panel) {
    constexpr int W = kWidth<T>;
    int64_t j = first;
    for (; j + W <= last; j += W) {
        const T* source = from + (j - first) * stride;
        int64_t k = 0;
        for (; k + W <= depth; k += W) {
            Vec<T> rows[W];
            for (int i = 0; i < W; ++i) rows[i] = load(source + i * stride + k);
            exchange_lanes<T, 1>(rows, std::make_integer_sequence<int, W>{});
            for (int i = 0; i < W; ++i) store(panel + (k + i) * kPanel<T> + j, rows[i]);
        }
        for (; k < depth; ++k)
            for (int i = 0; i < W; ++i) panel[k * kPanel<T> + j + i] = source[i * stride + k];
    }
    for (; j < last; ++j)
        for (int64_t k = 0; k < depth; ++k) panel[k * kPanel<T> + j] = from[(j - first) * stride + k];
}

template <typename T>
void clear_panel(int64_t depth, int64_t first, T* panel) {
    for (int64_t k = 0; k < depth; ++k)
        for (int64_t j = first; j < kPanel<T>; ++j) panel[k * kPanel<T> + j] = T(0);
}

// Packs panel p of B = W^T for a weight (columns, depth).
template <typename T>
void pack_transposed(const T* weight, int64_t depth, int64_t columns, int64_t p, T* packed) {
    T* panel = packed + p * kPanel<T> * depth;
    const int64_t first = p * kPanel<T>, some = columns - first < kPanel<T> ? columns - first : kPanel<T>;
    transpose_into_panel(weight + first * depth, depth, depth, 0, some, panel);
    clear_panel(depth, some, panel);
}

// Packs panel p of B = W^T for h W^T: blocks side by side; depth = size = H.
template <typename T>
void pack_forward(const WeightBlock<T>* blocks, int64_t count, int64_t size, int64_t p, T* packed) {
    T* panel = packed + p * kPanel<T> * size;
    const int64_t start = p * kPanel<T>, end = start + kPanel<T>, all = count * size;
    for (int64_t column = start; column < end && column < all;) {  // a panel may hold columns of several blocks
        const WeightBlock<T>& w = blocks[column / size];
        const int64_t row = column % size, some = (end < column + size - row ? end : column + size - row) - column;
        const int64_t first = column - start;
        if (w.transposed)
            for (int64_t k = 0; k < size; ++k)
                for (int64_t j = 0; j < some; ++j) panel[k * kPanel<T> + first + j] = w.data[k * w.stride + row + j];
        else
            transpose_into_panel(w.data + row * w.stride, w.stride, size, first, first + some, panel);
        column += some;
    }
    if (end > all) clear_panel(size, all > start ? all - start : 0, panel);
}

// Packs panel p of B = W for d W: blocks stacked, depth = count * size, columns = size.
template <typename T>
void pack_backward(const WeightBlock<T>* blocks, int64_t count, int64_t size, int64_t p, T* packed) {
    T* panel = packed + p * kPanel<T> * count * size;
    const int64_t first = p * kPanel<T>, some = size - first < kPanel<T> ? size - first : kPanel<T>;
    for (int64_t b = 0; b < count; ++b, panel += size * kPanel<T>) {
        const WeightBlock<T>& w = blocks[b];
        if (w.transposed)
            transpose_into_panel(w.data + first * w.stride, w.stride, size, 0, some, panel);
        else
            for (int64_t k = 0; k < size; ++k)
                for (int64_t j = 0; j < some; ++j) panel[k * kPanel<T> + j] = w.data[k * w.stride + first + j];
        clear_panel(size, some, panel);
    }
}

}  // namespace weft
