// The kernel of matrix products: a few rows times a packed weight.
//
// The weight is packed into panels of kPanel columns, in the order in which the kernel reads them. The kernel holds a
// block of R rows x kPanelVectors vectors of sums in registers. The sums start from values that the caller chooses (the
// projected input, a bias, C itself, or zero), so nothing is copied or cleared beforehand.
#pragma once

#include <type_traits>
#include <utility>

#include "bfloat16.hpp"
#include "int8.hpp"
#include "vector.hpp"

namespace weft {

#if defined(__AVX512F__)
constexpr int kPanelVectors = 2;
constexpr int kTileRows = 8;         // 16 of 32 registers hold sums; 8 rows divide most batches
constexpr int64_t kPanelAhead = 32;  // depths to prefetch: a whole weight seldom fits into the second-level cache
constexpr int kDepths = 1;           // that an iteration of the kernel takes
#elif defined(__aarch64__)
constexpr int kPanelVectors = 4;    // 64 bytes, a cache line
constexpr int kTileRows = 5;        // 20 of 32, more than four units with a latency of four cycles need; gcc spills 24
constexpr int64_t kPanelAhead = 0;  // the CPU prefetches in time
constexpr int kDepths = 1;
#else
constexpr int kPanelVectors = 2;
constexpr int kTileRows = 6;        // 12 of 16
constexpr int64_t kPanelAhead = 0;  // the CPU prefetches in time, and the kernel needs its ports for loads
constexpr int kDepths = 4;
#endif
template <typename T>
constexpr int kPanel = kPanelVectors* kWidth<T>;

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

template <typename T>
struct Where {  // rows in memory: row r is at base + index[r] * stride
    T* base;
    int64_t stride;
    const int64_t* index;  // nullptr: the row number itself; stride 0: the same for all rows
    T* row(int64_t r) const { return base + (index ? index[r] : r) * stride; }
};

// The initial sums of products that start at zero.
template <typename T>
alignas(64) constexpr T kZeros[kPanel<T>] = {};

// What the kernel does with an element of A and a vector of B: multiply-add, or the dot product of pairs of bfloat16.
template <typename T>
struct Plain {
    static Vec<T> begin(Vec<T> sum) { return sum; }
    static Vec<T> add(Vec<T> sum, const T* a, Vec<T> b) { return sum + *a * b; }
};
struct Pairs {
    static Vec<float> begin(Vec<float> sum) { return begin_dot(sum); }
    static Vec<float> add(Vec<float> sum, const float* a, Vec<float> b) { return dot(sum, a, b); }
};

struct Bytes {};  // sums of products of int8: byte_kernel

// A (R, depth) with rows `stride` apart or, if Packed, with R elements for each depth. `start` points to the initial
// sums of each row. V is the number of vectors of the panel's columns that are computed. The depth is not 0.
template <typename Sum, typename T, int R, bool Packed, int V>
inline void kernel(const T* a, int64_t stride, const T* panel, int64_t depth, const T* const* start, T* c,
                   int64_t c_stride) {
    Vec<T> sum[R][V];
#pragma GCC unroll 8  // otherwise the sums go through memory
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sum[r][v] = Sum::begin(load(start[r] + v * kWidth<T>));
    if (depth < 1) __builtin_unreachable();  // otherwise gcc keeps a copy of the sums in memory
#pragma GCC unroll kDepths
    for (int64_t k = 0; k < depth; ++k, panel += kPanel<T>) {
        Vec<T> b[V];
        for (int v = 0; v < V; ++v) {
            b[v] = load(panel + v * kWidth<T>);
            if constexpr (R < 4) hold(b[v]);
        }
        for (int v = 0; kPanelAhead && v < V; ++v) __builtin_prefetch(panel + kPanelAhead * kPanel<T> + v * kWidth<T>);
        for (int r = 0; r < R; ++r) {
            const T* factor = Packed ? a + k * R + r : a + r * stride + k;
            for (int v = 0; v < V; ++v) sum[r][v] = Sum::add(sum[r][v], factor, b[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) store(c + r * c_stride + v * kWidth<T>, sum[r][v]);
}

template <typename Sum, typename T, bool Packed, int V = kPanelVectors, int R = kTileRows>
inline void kernel_of(int64_t rows, const T* a, int64_t stride, const T* panel, int64_t depth, const T* const* start,
                      T* c, int64_t c_stride) {
    if (rows == R) {
        if constexpr (std::is_same<Sum, Bytes>::value)
            return byte_kernel<R, 1, kPanelVectors>(
                a, stride, panel, depth, [&](int r, int) { return start[r]; }, c, c_stride);
        else if (depth > 0)
            return kernel<Sum, T, R, Packed, V>(a, stride, panel, depth, start, c, c_stride);
        else  // nothing to add: a batch without tokens
            for (int i = 0; i < R * V; ++i)
                store(c + i / V * c_stride + i % V * kWidth<T>, Sum::begin(load(start[i / V] + i % V * kWidth<T>)));
        return;
    }
    if constexpr (R > 1) kernel_of<Sum, T, Packed, V, R - 1>(rows, a, stride, panel, depth, start, c, c_stride);
}

// One row has too few sums in a panel to hide latency: kTogether panels at once, with the same results.
constexpr int kTogether = 4;
template <typename Sum, typename T, typename Start>
inline void kernel_of_row(const T* a, const T* panels, int64_t depth, int64_t n, const Start& start, T* c) {
    Vec<T> sum[kTogether][kPanelVectors];
    for (int p = 0; p < kTogether; ++p) {
        const Where<const T> where = start(n + p * kPanel<T>);
        for (int v = 0; v < kPanelVectors; ++v)
            sum[p][v] = where.base ? Sum::begin(load(where.row(0) + v * kWidth<T>)) : Vec<T>{};
    }
    for (int64_t k = 0; k < depth; ++k, panels += kPanel<T>)
        for (int p = 0; p < kTogether; ++p)
            for (int v = 0; v < kPanelVectors; ++v) {
                const T* b = panels + p * depth * kPanel<T> + v * kWidth<T>;
                sum[p][v] = Sum::add(sum[p][v], a + k, load(b));
            }
    for (int p = 0; p < kTogether; ++p)
        for (int v = 0; v < kPanelVectors; ++v) store(c + p * kPanel<T> + v * kWidth<T>, sum[p][v]);
}

// Prefetches the elements of a panel's columns in one row.
template <typename T>
inline void prefetch_panel(const T* row) {
    for (int64_t j = 0; j < kPanel<T>; j += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + j, 0, 2);
}

inline int64_t tiles(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// C (rows x columns) = start + A (rows x depth) B, with B packed; depth counts the rows of a panel. Columns are those
// of the panels, padding included. start(n) gives the initial sums of the panel of column n; no base: zero.
template <typename Sum, typename T, typename Start>
void multiply_as(int64_t rows, const T* a, int64_t a_stride, const T* packed, int64_t depth, int64_t columns, T* c,
                 int64_t c_stride, const Start& start) {
    int64_t n = 0;
    for (; rows == 1 && n + kTogether * kPanel<T> <= columns; n += kTogether * kPanel<T>) {
        if constexpr (std::is_same<Sum, Bytes>::value)
            byte_kernel<1, kTogether, kPanelVectors>(
                a, 0, packed + n * depth, depth,
                [&](int, int p) {
                    const Where<const T> where = start(n + p * kPanel<T>);
                    return where.base ? where.row(0) : nullptr;
                },
                c + n, 0);
        else
            kernel_of_row<Sum>(a, packed + n * depth, depth, n, start, c + n);
    }
    const int64_t count = tiles(rows);
    auto start_of = [&](int64_t column) {
        const Where<const T> where = start(column);
        return where.base ? where : Where<const T>{kZeros<T>, 0, nullptr};
    };
    Where<const T> next = n < columns ? start_of(n) : Where<const T>{};
    for (; n < columns; n += kPanel<T>) {
        const Where<const T> where = next;
        if (n + kPanel<T> < columns) next = start_of(n + kPanel<T>);
        for (int64_t i = 0; i < count; ++i) {  // rows are divided evenly: 9 as 5 + 4, not 8 + 1
            const int64_t from = rows * i / count, to = rows * (i + 1) / count;
            const T* begin[kTileRows];
            for (int64_t r = from; r < to; ++r) begin[r - from] = where.row(r);
            // The initial sums of the next tile: a kernel cannot begin before it has them.
            const int64_t ahead = i + 1 < count ? i + 1 : 0;
            for (int64_t r = rows * ahead / count; r < rows * (ahead + 1) / count; ++r)
                prefetch_panel((ahead ? where : next).row(r));
            kernel_of<Sum, T, false>(to - from, a + from * a_stride, a_stride, packed + n * depth, depth, begin,
                                     c + from * c_stride + n, c_stride);
        }
    }
}

}  // namespace weft
