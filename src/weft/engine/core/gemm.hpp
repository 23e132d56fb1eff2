// Large matrix products outside of the time loop: the projection of all inputs, and the gradients of weights and
// inputs.
//
// C = start + A B, where A is contiguous in rows or in depth, and B in depth or in columns. Both are packed: B once, A
// block by block as it is used. Blocks of rows are jobs. Their boundaries do not depend on the number of threads.
#pragma once

#include "direction.hpp"

namespace weft {

// A block of A is packed for all panels of B: 64 rows by 512 depths are 128 KB of float32, which stay in the
// second-level cache while the panels pass. A depth of up to kMostDepth is one block: a short last block would repeat
// the sums' way through memory for little work.
constexpr int64_t kBlockRows = 8 * kTileRows, kBlockDepth = 512, kMostDepth = 3 * kBlockDepth / 2;
constexpr int64_t kAhead = 16;  // depths to prefetch on strided access

// A product. Element (r, k) of A is at a + r * a_row + k * a_depth, and so on; one of the two distances of A and of B
// is 1.
template <typename T>
struct Gemm {
    int64_t rows, columns, depth;
    const T* a = nullptr;
    int64_t a_row, a_depth;
    const T* b = nullptr;
    int64_t b_depth, b_column;
    T* c = nullptr;
    int64_t c_row;
    const T* start = nullptr;  // a row that every row of C begins with; nullptr: zeros
    // The row in memory of each row of A, each depth of B and each row of C; nullptr: the same index.
    const int64_t *a_index = nullptr, *b_index = nullptr, *c_index = nullptr;
    bool add = false;     // to the values of C
    bool late = false;    // B is only known after the loop
    bool kept = false;    // B stands packed since an earlier call
    bool half_b = false;  // B is in bfloat16, contiguous in columns
    int next = -1;        // the product that adds to the same C after this one
    T* packed = nullptr;
    Precision precision = Precision::exact;

    Panels<T> weight() const { return {packed, depth, precision}; }
    int64_t packed_size() const { return panels() * kPanel<T> * weight().words(); }
    int64_t panels() const { return (columns + kPanel<T> - 1) / kPanel<T>; }
    int64_t blocks() const { return (rows + kBlockRows - 1) / kBlockRows; }
    bool same_rows(const Gemm& other) const {
        return a == other.a && a_row == other.a_row && a_depth == other.a_depth && rows == other.rows &&
               depth == other.depth && a_index == other.a_index && precision == other.precision;
    }
    T* target(int64_t row) const { return c + (c_index ? c_index[row] : row) * c_row; }
};

// Whether rows of A in int8 fit into one block of depths.
inline bool fits_int8(int64_t depth) { return panel_words(Precision::int8, depth) <= kMostDepth; }

// The precision of the projection of the input.
inline Precision input_precision(Precision precision, int64_t inputs) {
    return precision == Precision::int8 && !fits_int8(inputs) ? Precision::exact : precision;
}

// A short copy, nearly always of Usual elements, a length the compiler knows.
template <int Usual, typename T>
inline void copy_few(const T* from, int64_t count, T* to) {
    if (count == Usual)
        for (int i = 0; i < Usual; ++i) to[i] = from[i];
    else
        for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

template <typename T>
void pack_elements(const Gemm<T>& work, int64_t p, T* to) {
    const int64_t first = p * kPanel<T>, some = std::min<int64_t>(kPanel<T>, work.columns - first);
    if (work.half_b) {
        for (int64_t k = 0; k < work.depth; ++k, to += kPanel<T>) {
            const auto* from = reinterpret_cast<const uint16_t*>(work.b) + k * work.b_depth + first;
            expand(from, some, to);
            std::fill(to + some, to + kPanel<T>, T(0));
        }
        return;
    }
    if (work.b_column == 1)
        return copy_into_panel(
            [&](int64_t k) { return work.b + (work.b_index ? work.b_index[k] : k) * work.b_depth + first; }, work.depth,
            some, to);
    transpose_into_panel(work.b + first * work.b_column, work.b_column, work.depth, 0, some, to);
    clear_panel(work.depth, some, to);
}

template <typename T>
void pack_panel(const Gemm<T>& work, int64_t p) {
    work.weight().fill(p, [&](T* to) { pack_elements(work, p, to); });
}

// Packs a block of rows and depths of A. If A is contiguous in depth, rows are copied, with a stride that is no power
// of two; otherwise into tiles of kTileRows, the last of which may be narrower.
template <typename T>
void pack_rows(const Gemm<T>& work, int64_t row, int64_t rows, int64_t k, int64_t depth, T* to) {
    if (work.a_depth == 1) {
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t from = work.a_index ? work.a_index[row + r] : row + r;
            std::copy_n(work.a + from * work.a_row + k, depth, to + r * (kMostDepth + 16));
        }
        return;
    }
    const T* from = work.a + row * work.a_row + k * work.a_depth;
    for (int64_t d = 0; d < depth; ++d)
        for (int64_t r = 0; r < rows; r += kTileRows) {
            const int64_t some = std::min<int64_t>(kTileRows, rows - r);
            __builtin_prefetch(from + (d + kAhead) * work.a_depth + r);
            copy_few<kTileRows>(from + d * work.a_depth + r, some, to + r * depth + d * some);
        }
}

// The same in a precision that is not exact; k and depth count words. int8: whole rows that are contiguous in depth.
inline void convert_rows(const Gemm<float>& work, int64_t row, int64_t rows, int64_t k, int64_t depth, float* to) {
    const int64_t first = 2 * k;
    const int64_t count = work.precision == Precision::int8 ? work.depth : std::min(2 * depth, work.depth - first);
    if (work.a_depth == 1) {
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t from = work.a_index ? work.a_index[row + r] : row + r;
            convert_row(work.precision, work.a + from * work.a_row + first, count, to + r * (kMostDepth + 16));
        }
        return;
    }
    const float* from = work.a + row * work.a_row + first * work.a_depth;
    float joined[kBlockRows];
    const float zeros[kBlockRows] = {};
    for (int64_t d = 0; d < depth; ++d, from += 2 * work.a_depth) {
        join_rows(from, 2 * d + 1 < count ? from + work.a_depth : zeros, rows, joined);
        for (int64_t r = 0; r < rows; r += kTileRows) {
            const int64_t some = std::min<int64_t>(kTileRows, rows - r);
            __builtin_prefetch(from + kAhead * work.a_depth + r);
            __builtin_prefetch(from + (kAhead + 1) * work.a_depth + r);
            copy_few<kTileRows>(joined + r, some, to + r * depth + d * some);
        }
    }
}

// One tile of a block: `packed` rows times a panel.
template <typename T>
void multiply_tile(const Gemm<T>& work, int64_t row, int64_t rows, int64_t p, int64_t k, int64_t depth,
                   const T* packed) {
    const T* panel = work.weight().panel(p) + k * kPanel<T>;
    const int64_t n = p * kPanel<T>, columns = std::min<int64_t>(kPanel<T>, work.columns - n);
    const bool direct = columns == kPanel<T> && !work.c_index;
    T beside[kTileRows * kPanel<T>];  // used if C has no room for a whole panel, or its rows are indexed
    T* target = direct ? work.target(row) + n : beside;
    const int64_t stride = direct ? work.c_row : kPanel<T>;
    const T* start[kTileRows];
    for (int64_t r = 0; r < rows; ++r) {
        start[r] = k || work.add ? work.target(row + r) + n : work.start ? work.start + n : kZeros<T>;
        if (start[r] != kZeros<T> && columns < kPanel<T>) {  // do not read past the end of a row
            std::copy_n(start[r], columns, beside + r * kPanel<T>);
            std::fill_n(beside + r * kPanel<T> + columns, kPanel<T> - columns, T(0));
            start[r] = beside + r * kPanel<T>;
        }
    }
    if (direct)  // C is seldom in the cache, and stores wait for one line after the other
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < kPanel<T>; j += 64 / static_cast<int64_t>(sizeof(T)))
                __builtin_prefetch(target + r * stride + j, 1);
    auto run = [&](auto sum, auto vectors) {
        using Sum = decltype(sum);
        if (work.a_depth == 1)
            kernel_of<Sum, T, false, vectors>(rows, packed, kMostDepth + 16, panel, depth, start, target, stride);
        else
            kernel_of<Sum, T, true, vectors>(rows, packed, 0, panel, depth, start, target, stride);
    };
    with_sum<T>(work.precision, [&](auto sum) {
        if (columns <= kWidth<T>)
            run(sum, std::integral_constant<int, 1>{});
        else
            run(sum, std::integral_constant<int, kPanelVectors>{});
    });
    for (int64_t r = 0; !direct && r < rows; ++r)
        std::copy_n(beside + r * kPanel<T>, columns, work.target(row + r) + n);
}

// One block of rows of products with the same A, which is packed once.
template <typename T>
void multiply_block(const std::vector<const Gemm<T>*>& works, int64_t block) {
    static thread_local Workspace workspace;
    const Gemm<T>& first = *works[0];
    const int64_t row = block * kBlockRows, rows = std::min(kBlockRows, first.rows - row);
    T* packed = workspace.elements<T>(kBlockRows * (kMostDepth + 16));
    // Depths are divided evenly: 521 at once, not 512 and 9.
    const int64_t words = first.weight().words();
    int64_t parts = std::max<int64_t>(1, (words + kBlockDepth / 2 - 1) / kBlockDepth);
    if (first.precision == Precision::int8) parts = 1;  // a row has one scale; see fits_int8
    const int64_t share = std::max<int64_t>(1, (words + parts - 1) / parts);
    for (int64_t k = 0; k == 0 || k < words; k += share) {
        const int64_t depth = std::min(share, words - k);
        if constexpr (std::is_same<T, float>::value)
            (first.precision == Precision::exact ? pack_rows<T> : convert_rows)(first, row, rows, k, depth, packed);
        else
            pack_rows(first, row, rows, k, depth, packed);
        for (const Gemm<T>* work : works)
            for (int64_t p = 0; p < work->panels(); ++p)
                for (int64_t r = 0; r < rows; r += kTileRows) {
                    const int64_t some = std::min<int64_t>(kTileRows, rows - r);
                    const T* from = packed + r * (first.a_depth == 1 ? kMostDepth + 16 : depth);
                    multiply_tile(*work, row + r, some, p, k, depth, from);
                }
    }
}

// Independent products, except for those that add to the same C one after the other.
template <typename T>
class Gemms {
  public:
    int add(const Gemm<T>& work) {
        works_.push_back(work);
        return static_cast<int>(works_.size()) - 1;
    }
    int count() const { return static_cast<int>(works_.size()); }
    Gemm<T>& operator[](int number) { return works_[static_cast<size_t>(number)]; }

    void ask(Arena<T>& arena) {
        for (Gemm<T>& work : works_)
            if (!work.kept) arena.ask(work.packed, work.packed_size());
    }
    void pack(Jobs& jobs, bool late) const {
        for (const Gemm<T>& work : works_)
            for (int64_t p = 0; !work.kept && work.late == late && p < work.panels(); ++p)
                jobs.add(work.depth * kPanel<T>, [&work, p] { pack_panel(work, p); });
    }
    void multiply(Jobs& jobs) const {
        std::vector<std::vector<const Gemm<T>*>> groups;
        for (const Gemm<T>& work : works_) {
            if (work.add) continue;  // it follows another
            auto group =
                std::find_if(groups.begin(), groups.end(), [&](const auto& some) { return some[0]->same_rows(work); });
            if (group == groups.end()) group = groups.emplace(group);
            group->push_back(&work);
        }
        for (const std::vector<const Gemm<T>*>& group : groups)
            for (int64_t block = 0; block < group[0]->blocks(); ++block) {
                int64_t columns = 0;
                for (const Gemm<T>* work : group) columns += work->columns;
                jobs.add(group[0]->depth * columns, [this, group, block] {
                    multiply_block(group, block);
                    for (const Gemm<T>* work : group)
                        for (int n = work->next; n >= 0; n = works_[static_cast<size_t>(n)].next)
                            multiply_block<T>({&works_[static_cast<size_t>(n)]}, block);
                });
            }
    }

  private:
    std::vector<Gemm<T>> works_;
};

}  // namespace weft
