// Rows of a table by number, and the gradient of the table: sums over the places where a row was read.
#pragma once

#include "noise.hpp"

namespace weft {

constexpr int64_t kLittle = 16384;  // numbers that are not worth waking anybody for

inline bool all_within(const int64_t* ids, int64_t count, int64_t rows) {
    bool fit = true;
    for (int64_t i = 0; i < count; ++i) fit &= ids[i] >= 0 && ids[i] < rows;
    return fit;
}

// to (count x width): row ids[i] of the table (rows x width), then noise where noise.keep says so.
template <typename T>
int read_rows(const T* table, int64_t rows, int64_t width, const int64_t* ids, int64_t count, const Noise& noise, T* to, int64_t threads) {
    if (!all_within(ids, count, rows)) return 2;
    const int64_t some = std::max<int64_t>(1, kLittle / std::max<int64_t>(1, width));
    parallel((count + some - 1) / some, threads, [&](int64_t part) {
        for (int64_t i = part * some; i < std::min(count, (part + 1) * some); ++i)
            std::copy_n(table + ids[i] * width, width, to + i * width);
    });
    if (noise.keep) drop(noise, count * width, to, to, threads);
    return 0;
}

// Threads share out the columns, by whole cache lines: each adds up all rows of its own, in their order.
template <typename T>
void add_rows(const T* gradient, int64_t rows, int64_t width, const int64_t* ids, int64_t count, const Noise& noise, T* table, int64_t threads) {
    static thread_local Workspace workspace;
    if (noise.keep) {
        T* dropped = workspace.numbers<T>(count * width);
        drop(noise, count * width, gradient, dropped, threads);
        gradient = dropped;
    }
    const int64_t numbers = rows * width, some = 4 * kLittle;
    parallel((numbers + some - 1) / some, threads, [&](int64_t part) {
        std::fill(table + part * some, table + std::min(numbers, (part + 1) * some), T(0));
    });
    constexpr int64_t line = 64 / sizeof(T);
    const int64_t lines = (width + line - 1) / line;
    const int64_t parts = count * width < 4 * kLittle ? 1 : std::max<int64_t>(1, std::min(threads, lines));
    parallel(parts, threads, [&](int64_t part) {
        const int64_t first = lines * part / parts * line, last = std::min(width, lines * (part + 1) / parts * line);
        for (int64_t i = 0; i < count; ++i)
            for (int64_t j = first; j < last; ++j) table[ids[i] * width + j] += gradient[i * width + j];
    });
    workspace.keep_at_most(size_t(1) << 26);
}

}  // namespace weft
