// Matrix products of a few rows with a weight that stays the same for a whole sequence.
//
// The weight is packed once a call into panels of kPanel columns, in the order the kernel reads it. The kernel holds
// a block of R rows x kPanelVectors vectors in registers and adds to what already stands in C, so that the caller
// decides where a sum begins (zero, a bias, the projected input).
#pragma once

#include "vector.hpp"

namespace weft {

constexpr int kPanelVectors = 2;
#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 24 of 32 registers hold sums
#else
constexpr int kTileRows = 6;  // 12 of 16
#endif
template <typename T>
constexpr int kPanel = kPanelVectors * kWidth<T>;
constexpr int kDepth = 512;  // rows of a panel used at a time: the piece stays near while the row tiles pass over it

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

template <typename T, int R>
inline void kernel(const T* a, int64_t a_stride, const T* panel, int64_t depth, T* c, int64_t c_stride) {
    Vec<T> sum[R][kPanelVectors];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < kPanelVectors; ++v) sum[r][v] = load(c + r * c_stride + v * kWidth<T>);
    for (int64_t k = 0; k < depth; ++k, panel += kPanel<T>) {
        Vec<T> b[kPanelVectors];
        for (int v = 0; v < kPanelVectors; ++v) b[v] = load(panel + v * kWidth<T>);
        for (int r = 0; r < R; ++r) {
            const T factor = a[r * a_stride + k];
            for (int v = 0; v < kPanelVectors; ++v) sum[r][v] += factor * b[v];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < kPanelVectors; ++v) store(c + r * c_stride + v * kWidth<T>, sum[r][v]);
}

template <typename T, int R = kTileRows>
inline void kernel_of(int64_t rows, const T* a, int64_t a_stride, const T* panel, int64_t depth, T* c, int64_t c_stride) {
    if (rows == R) return kernel<T, R>(a, a_stride, panel, depth, c, c_stride);
    if constexpr (R > 1) kernel_of<T, R - 1>(rows, a, a_stride, panel, depth, c, c_stride);
}

// C (rows x columns) += A (rows x depth) B, with B packed. Columns are those of the panels, padding included.
template <typename T>
void multiply(int64_t rows, const T* a, int64_t a_stride, const T* packed, int64_t depth, int64_t columns, T* c,
              int64_t c_stride) {
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    for (int64_t k = 0; k < depth; k += kDepth) {
        const int64_t some = depth - k < kDepth ? depth - k : kDepth;
        for (int64_t n = 0; n < columns; n += kPanel<T>) {
            const T* panel = packed + n * depth + k * kPanel<T>;
            for (int64_t i = 0; i < tiles; ++i) {  // rows dealt evenly: 16 as 8 + 8, not 12 + 4
                const int64_t from = rows * i / tiles, to = rows * (i + 1) / tiles;
                kernel_of<T>(to - from, a + from * a_stride + k, a_stride, panel, some, c + from * c_stride + n, c_stride);
            }
        }
    }
}

// One block of a weight: `rows` x `columns` numbers at `data`, or, turned, their transpose is what lies there.
template <typename T>
struct WeightBlock {
    const T* data;
    int64_t stride;
    bool turned;
    T at(int64_t row, int64_t column) const { return turned ? data[column * stride + row] : data[row * stride + column]; }
};

// Packs B = W^T for h W^T: blocks side by side, panels `from` to `to`; depth = size = H.
template <typename T>
void pack_forward(const WeightBlock<T>* blocks, int64_t count, int64_t size, int64_t from, int64_t to, T* packed) {
    for (int64_t p = from; p < to; ++p) {
        T* panel = packed + p * kPanel<T> * size;
        for (int64_t j = 0; j < kPanel<T>; ++j) {
            const int64_t column = p * kPanel<T> + j;
            if (column >= count * size) {
                for (int64_t k = 0; k < size; ++k) panel[k * kPanel<T> + j] = T(0);
                continue;
            }
            const WeightBlock<T>& w = blocks[column / size];
            const int64_t row = column % size;
            if (w.turned)
                for (int64_t k = 0; k < size; ++k) panel[k * kPanel<T> + j] = w.data[k * w.stride + row];
            else
                for (int64_t k = 0; k < size; ++k) panel[k * kPanel<T> + j] = w.data[row * w.stride + k];
        }
    }
}

// Packs B = W for d W: blocks one below the other, depth = count * size, columns = size.
template <typename T>
void pack_back(const WeightBlock<T>* blocks, int64_t count, int64_t size, int64_t from, int64_t to, T* packed) {
    for (int64_t p = from; p < to; ++p) {
        T* panel = packed + p * kPanel<T> * count * size;
        const int64_t first = p * kPanel<T>, some = size - first < kPanel<T> ? size - first : kPanel<T>;
        for (int64_t b = 0; b < count; ++b) {
            for (int64_t k = 0; k < size; ++k, panel += kPanel<T>) {
                for (int64_t j = 0; j < some; ++j) panel[j] = blocks[b].at(k, first + j);
                for (int64_t j = some; j < kPanel<T>; ++j) panel[j] = T(0);
            }
        }
    }
}

}  // namespace weft
