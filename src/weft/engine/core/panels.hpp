// Weights in panels, as the kernel reads them, and the rows that they are multiplied by, in each precision.
#pragma once

#include "abi.hpp"
#include "gemm_kernel.hpp"
#include "threads.hpp"

namespace weft {

// The precision of products, given what a call asks for: those of doubles are exact.
template <typename T>
Precision precision_of(int64_t asked) {
    return std::is_same<T, float>::value ? static_cast<Precision>(asked) : Precision::exact;
}

// Words of a panel in each column, and of a row of A, for a depth.
inline int64_t panel_words(Precision precision, int64_t depth) {
    switch (precision) {
        case Precision::bfloat16: return pairs(depth);
        case Precision::int8: return kPanelHead + quads(depth);
        default: return depth;
    }
}
inline int64_t row_words(Precision precision, int64_t depth) {
    return precision == Precision::int8 ? kRowHead + quads(depth) : panel_words(precision, depth);
}

// A row of A in a precision that is not exact.
inline void convert_row(Precision precision, const float* from, int64_t count, float* to) {
    if (precision == Precision::int8)
        quantize_row(from, count, to);
    else
        join_neighbours(from, count, to);
}

// Rows of A as the kernel reads them.
template <typename T>
struct Operand {
    const T* rows;
    int64_t stride;
};

// Elements between converted rows; 0 where rows are read as they are.
inline int64_t converted_stride(Precision precision, int64_t depth) {
    return precision == Precision::exact ? 0 : round_up(row_words(precision, depth), 16) + 16;
}

// Calls work(Sum) for the kind of sum that a precision needs.
template <typename T, typename Work>
inline void with_sum(Precision precision, const Work& work) {
    if constexpr (std::is_same<T, float>::value) {
        if (precision == Precision::bfloat16) return work(Pairs{});
        if (precision == Precision::int8) return work(Bytes{});
    }
    work(Plain<T>{});
}

// A weight (depth, columns) in panels.
template <typename T>
struct Panels {
    T* data = nullptr;
    int64_t depth = 0;
    Precision precision = Precision::exact;

    int64_t words() const { return panel_words(precision, depth); }
    T* panel(int64_t p) const { return data + p * kPanel<T> * words(); }

    // Writes panel p: pack(to) writes it as elements.
    template <typename Pack>
    void fill(int64_t p, const Pack& pack) const {
        if constexpr (std::is_same<T, float>::value)
            if (precision != Precision::exact) {
                static thread_local Workspace workspace;
                T* elements = workspace.elements<T>(depth * kPanel<T>);
                pack(elements);
                if (precision == Precision::int8) return quantize_panel<kPanel<T>>(elements, depth, panel(p));
                return join_depths(elements, depth, kPanel<T>, panel(p));
            }
        pack(panel(p));
    }

    // A for this weight: the rows themselves, or converted in `memory`, rows * converted_stride elements.
    Operand<T> operand(int64_t rows, const T* a, int64_t stride, T* memory) const {
        if constexpr (std::is_same<T, float>::value)
            if (precision != Precision::exact) {
                const int64_t apart = converted_stride(precision, depth);
                for (int64_t r = 0; r < rows; ++r) convert_row(precision, a + r * stride, depth, memory + r * apart);
                return {memory, apart};
            }
        (void)memory, (void)rows;
        return {a, stride};
    }
};

// multiply_as, as the weight's panels need it.
template <typename T, typename Start>
void multiply(int64_t rows, const Operand<T>& a, const Panels<T>& weight, int64_t columns, T* c, int64_t c_stride,
              const Start& start) {
    with_sum<T>(weight.precision, [&](auto sum) {
        multiply_as<decltype(sum)>(rows, a.rows, a.stride, weight.data, weight.words(), columns, c, c_stride, start);
    });
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

// Makes row j of a matrix column j of a panel, for rows `first` to `last`, by squares of vectors. The rows below this
// square and the memory of the next one are prefetched.
template <typename T>
void transpose_into_panel(const T* from, int64_t stride, int64_t depth, int64_t first, int64_t last, T* panel) {
    constexpr int W = kWidth<T>;
    int64_t j = first;
    for (; j + W <= last; j += W) {
        const T* source = from + (j - first) * stride;
        int64_t k = 0;
        for (; k + W <= depth; k += W) {
            Vec<T> rows[W];
            const int64_t next = k + 2 * W <= depth ? k + W : k;  // not past the end: another thread writes there
            for (int i = 0; i < W; ++i) {
                rows[i] = load(source + i * stride + k);
                __builtin_prefetch(source + (W + i) * stride + k);
                __builtin_prefetch(panel + (next + i) * kPanel<T> + j, 1);
            }
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

// Copies `some` columns of `depth` rows into a panel, whose other columns become zero; row(k) is where row k begins.
template <typename T, typename Row>
void copy_into_panel(const Row& row, int64_t depth, int64_t some, T* panel) {
    constexpr int64_t ahead = 16, line = 64 / sizeof(T);
    for (int64_t k = 0; k < depth; ++k) {
        const int64_t next = k + ahead < depth ? k + ahead : depth - 1;
        for (int64_t j = 0; j < kPanel<T>; j += line) {
            __builtin_prefetch(row(next) + j);
            __builtin_prefetch(panel + next * kPanel<T> + j, 1);
        }
        const T* from = row(k);
        T* to = panel + k * kPanel<T>;
        if (some == kPanel<T>)  // nearly always: a length the compiler knows
            for (int j = 0; j < kPanel<T>; ++j) to[j] = from[j];
        else
            for (int64_t j = 0; j < kPanel<T>; ++j) to[j] = j < some ? from[j] : T(0);
    }
}

// Packs panel p of B = W^T for a weight (columns, depth).
template <typename T>
void pack_transposed(const T* weight, int64_t depth, int64_t columns, int64_t p, T* panel) {
    const int64_t first = p * kPanel<T>, some = columns - first < kPanel<T> ? columns - first : kPanel<T>;
    transpose_into_panel(weight + first * depth, depth, depth, 0, some, panel);
    clear_panel(depth, some, panel);
}

// Packs panel p of B = W^T for h W^T: blocks side by side; depth = size = H.
template <typename T>
void pack_forward(const WeightBlock<T>* blocks, int64_t count, int64_t size, int64_t p, T* panel) {
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
void pack_backward(const WeightBlock<T>* blocks, int64_t count, int64_t size, int64_t p, T* panel) {
    const int64_t first = p * kPanel<T>, some = size - first < kPanel<T> ? size - first : kPanel<T>;
    for (int64_t b = 0; b < count; ++b, panel += size * kPanel<T>) {
        const WeightBlock<T>& w = blocks[b];
        if (w.transposed) {
            transpose_into_panel(w.data + first * w.stride, w.stride, size, 0, some, panel);
            clear_panel(size, some, panel);
        } else {
            copy_into_panel([&](int64_t k) { return w.data + k * w.stride + first; }, size, some, panel);
        }
    }
}

}  // namespace weft
