// Large products outside the loop: the projection of all inputs, and the gradients of weights and inputs.
//
// C = start + A B, where A runs along memory in rows or in depth, and so does B in depth or in columns. Both are packed, B once for all, A block by block as it is used; blocks of
// rows are shared out to the threads, and how they are cut does not depend on how many threads there are.
#pragma once

#include "call.hpp"

namespace weft {

constexpr int64_t kBlockRows = 4 * kTileRows, kBlockDepth = 384;
constexpr int64_t kAhead = 16;  // depths: a strided walk needs its lines asked for in time

template <typename T>
struct Large {
    int64_t rows, columns, depth;
    const T* a;
    int64_t a_row, a_depth;
    const T* b;
    int64_t b_depth, b_column;
    T* c;
    int64_t c_row;
    const T* start;  // a row that every row of C begins with; nullptr: zeros
    bool add;        // to what stands in C, instead
    T* packed;       // of B

    int64_t panels() const { return (columns + kPanel<T> - 1) / kPanel<T>; }
    int64_t blocks() const { return (rows + kBlockRows - 1) / kBlockRows; }
};

// A short copy, nearly always of Usual numbers: then the compiler knows how many.
template <int Usual, typename T>
inline void copy_few(const T* from, int64_t count, T* to) {
    if (count == Usual)
        for (int i = 0; i < Usual; ++i) to[i] = from[i];
    else
        for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

template <typename T>
void pack_panel(const Large<T>& work, int64_t p) {
    T* to = work.packed + p * kPanel<T> * work.depth;
    const int64_t first = p * kPanel<T>, some = std::min<int64_t>(kPanel<T>, work.columns - first);
    if (work.b_column == 1) {
        for (int64_t k = 0; k < work.depth; ++k, to += kPanel<T>) {
            copy_few<kPanel<T>>(work.b + k * work.b_depth + first, some, to);
            for (int64_t j = some; j < kPanel<T>; ++j) to[j] = T(0);
        }
        return;
    }
    turn_into_panel(work.b + first * work.b_column, work.b_column, work.depth, 0, some, to);
    clear_panel(work.depth, some, to);
}

// A block of rows and depths near at hand. Where depth runs along memory, rows as they are, a cache line out of step
// with powers of two; else tiles of kTileRows, the last as narrow as it is.
template <typename T>
void pack_rows(const Large<T>& work, int64_t row, int64_t rows, int64_t k, int64_t depth, T* to) {
    const T* from = work.a + row * work.a_row + k * work.a_depth;
    if (work.a_depth == 1) {
        for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * work.a_row, depth, to + r * (kBlockDepth + 16));
        return;
    }
    for (int64_t d = 0; d < depth; ++d)
        for (int64_t r = 0; r < rows; r += kTileRows) {
            const int64_t some = std::min<int64_t>(kTileRows, rows - r);
            __builtin_prefetch(from + (d + kAhead) * work.a_depth + r);
            copy_few<kTileRows>(from + d * work.a_depth + r, some, to + r * depth + d * some);
        }
}

template <typename T>
void multiply_block(const Large<T>& work, int64_t block) {
    static thread_local Workspace workspace;
    const int64_t row = block * kBlockRows, rows = std::min(kBlockRows, work.rows - row);
    T* packed = workspace.numbers<T>(kBlockRows * (kBlockDepth + 16 + kPanel<T>));
    T* beside = packed + kBlockRows * (kBlockDepth + 16);  // columns that do not fill the last panel are computed here
    for (int64_t k = 0; k == 0 || k < work.depth; k += kBlockDepth) {
        const int64_t depth = std::min(kBlockDepth, work.depth - k);
        pack_rows(work, row, rows, k, depth, packed);
        for (int64_t p = 0; p < work.panels(); ++p) {
            const T* panel = work.packed + p * kPanel<T> * work.depth + k * kPanel<T>;
            const int64_t n = p * kPanel<T>, some_columns = std::min<int64_t>(kPanel<T>, work.columns - n);
            const bool whole = some_columns == kPanel<T>;
            for (int64_t r = 0; r < rows; r += kTileRows) {
                const int64_t some = std::min<int64_t>(kTileRows, rows - r);
                T* target = whole ? work.c + (row + r) * work.c_row + n : beside + r * kPanel<T>;
                const int64_t target_row = whole ? work.c_row : kPanel<T>;
                const T* start[kTileRows];
                for (int64_t i = 0; i < some; ++i) {
                    start[i] = k || work.add ? work.c + (row + r + i) * work.c_row + n : work.start ? work.start + n : nullptr;
                    if (start[i] && !whole) start[i] = std::copy_n(start[i], some_columns, target + i * target_row) - some_columns;
                }
                const T* const* begin = start[0] ? start : nullptr;
                if (work.a_depth == 1)
                    kernel_of<T, false>(some, packed + r * (kBlockDepth + 16), kBlockDepth + 16, panel, depth, begin, target, target_row);
                else
                    kernel_of<T, true>(some, packed + r * depth, 0, panel, depth, begin, target, target_row);
                for (int64_t i = 0; !whole && i < some; ++i)
                    std::copy_n(target + i * target_row, some_columns, work.c + (row + r + i) * work.c_row + n);
            }
        }
    }
}

template <typename T>
Large<T> read_large(const int64_t* data) {
    Large<T> work;
    work.rows = data[0];
    work.columns = data[1];
    work.depth = data[2];
    work.a = reinterpret_cast<const T*>(data[3]);
    work.a_row = data[4];
    work.a_depth = data[5];
    work.b = reinterpret_cast<const T*>(data[6]);
    work.b_depth = data[7];
    work.b_column = data[8];
    work.c = reinterpret_cast<T*>(data[9]);
    work.c_row = data[10];
    work.start = reinterpret_cast<const T*>(data[11]);
    work.add = data[12] != 0;
    return work;
}

// All products at once: those of one call are independent of each other.
template <typename T>
int run_large(const int64_t* data, int64_t count, int64_t threads) {
    static thread_local Workspace workspace;
    struct Piece {
        size_t work;
        int64_t part;
    };
    std::vector<Large<T>> works;
    std::vector<Piece> panels, blocks;
    int64_t size = 0, operations = 0;
    for (int64_t i = 0; i < count; ++i) {
        works.push_back(read_large<T>(data + 13 * i));
        const Large<T>& work = works.back();
        for (int64_t p = 0; p < work.panels(); ++p) panels.push_back({works.size() - 1, p});
        for (int64_t b = 0; b < work.blocks(); ++b) blocks.push_back({works.size() - 1, b});
        size += work.panels() * kPanel<T> * work.depth;
        operations += work.rows * work.columns * work.depth;
    }
    T* next = workspace.numbers<T>(size);
    for (Large<T>& work : works) {
        work.packed = next;
        next += work.panels() * kPanel<T> * work.depth;
    }
    if (operations < 200000) threads = 1;
    parallel(static_cast<int64_t>(panels.size()), threads,
             [&](int64_t i) { pack_panel(works[panels[static_cast<size_t>(i)].work], panels[static_cast<size_t>(i)].part); });
    parallel(static_cast<int64_t>(blocks.size()), threads,
             [&](int64_t i) { multiply_block(works[blocks[static_cast<size_t>(i)].work], blocks[static_cast<size_t>(i)].part); });
    return 0;
}

// to[ids[n]] += from[n] for rows of `columns` numbers, each thread its own columns, rows always in order.
template <typename T>
int scatter_add(const int64_t* ids, int64_t count, const T* from, int64_t columns, T* to, int64_t threads) {
    if (count * columns < 65536) threads = 1;
    parallel(threads, threads, [&](int64_t i) {
        const int64_t first = columns * i / threads, last = columns * (i + 1) / threads;
        for (int64_t n = 0; n < count; ++n) {
            const T* source = from + n * columns;
            T* target = to + ids[n] * columns;
            for (int64_t j = first; j < last; ++j) target[j] += source[j];
        }
    });
    return 0;
}

}  // namespace weft
