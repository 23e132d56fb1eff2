// The interpreter: runs one segment of a program over some rows.
//
// An instruction names entries of a table of pointers and works on a whole tile at a time, so that choosing what to do
// costs little beside doing it. Where H is a whole number of vectors, a tile is one row (or a piece of a long one) and
// instructions read and write their places directly. Otherwise, or where rows are short, a tile is several rows,
// padded to whole vectors, copied in and out.
#pragma once

#include <algorithm>
#include <vector>

#include "code.hpp"
#include "product.hpp"

namespace weft {

constexpr int64_t kTileLanes = 512;

template <typename T>
inline void copy_row(const T* from, int64_t count, T* to) {  // rows are short: no call, no question of alignment
    int64_t i = 0;
    for (; i + kWidth<T> <= count; i += kWidth<T>) store(to + i, load(from + i));
    for (; i < count; ++i) to[i] = from[i];
}

template <typename T, typename F>
inline void each(int64_t lanes, T* d, const T* a, F f) {
    for (int64_t i = 0; i < lanes; i += kWidth<T>) store(d + i, f(load(a + i)));
}
template <typename T, typename F>
inline void each(int64_t lanes, T* d, const T* a, const T* b, F f) {
    for (int64_t i = 0; i < lanes; i += kWidth<T>) store(d + i, f(load(a + i), load(b + i)));
}
template <typename T, typename F>
inline void each(int64_t lanes, T* d, const T* a, const T* b, const T* c, F f) {
    for (int64_t i = 0; i < lanes; i += kWidth<T>) store(d + i, f(load(a + i), load(b + i), load(c + i)));
}

template <typename T>
class Machine {
  public:
    // `arena` holds arena_size() numbers; `sums` holds padded H for each sum, and is added to.
    Machine(const Code& code, int64_t hidden, T* arena, T* sums)
        : code_(code), hidden_(hidden), padded_(round_up(hidden, kWidth<T>)), direct_(is_direct(hidden)), sums_(sums) {
        tile_rows_ = direct_ ? 1 : std::max<int64_t>(1, kTileLanes / padded_);
        chunk_ = direct_ && !code.whole_rows ? std::min(hidden, kTileLanes) : padded_;
        where_.resize(code.places.size());
        table_.resize(code.places.size() + code.constants.size() + static_cast<size_t>(code.sums + code.registers));
        const int64_t lanes = tile_rows_ * chunk_;
        size_t entry = 0;
        for (; entry < code.places.size(); ++entry)
            if (!direct_) {
                table_[entry] = arena;
                std::fill(arena, arena + lanes, T(0));
                arena += lanes;
            }
        for (double value : code.constants) {
            table_[entry++] = arena;
            std::fill(arena, arena + lanes, static_cast<T>(value));
            arena += lanes;
        }
        first_sum_ = entry;
        entry += static_cast<size_t>(code.sums);
        for (; entry < table_.size(); ++entry) {
            table_[entry] = arena;
            arena += lanes;
        }
    }

    static bool is_direct(int64_t hidden) { return hidden % kWidth<T> == 0 && hidden >= 8 * kWidth<T>; }

    static int64_t arena_size(const Code& code, int64_t hidden) {
        const int64_t padded = round_up(hidden, kWidth<T>);
        const int64_t lanes = std::max(kTileLanes, padded);
        return lanes * static_cast<int64_t>(code.places.size() + code.constants.size() + static_cast<size_t>(code.registers));
    }

    Where<T>& where(size_t place) { return where_[place]; }

    void run(const Segment& segment, int64_t rows) {
        if (direct_)
            for (int64_t r = 0; r < rows; ++r) run_row(segment, r);
        else
            for (int64_t r = 0; r < rows; r += tile_rows_) run_tile(segment, r, std::min(tile_rows_, rows - r));
    }

  private:
    void run_row(const Segment& segment, int64_t row) {
        for (int p : segment.used) table_[static_cast<size_t>(p)] = where_[static_cast<size_t>(p)].row(row);
        for (int64_t column = 0; column < hidden_; column += chunk_) {
            for (int s = 0; s < code_.sums; ++s)
                table_[first_sum_ + static_cast<size_t>(s)] = sums_ + s * padded_ + column;
            const int64_t lanes = std::min(chunk_, hidden_ - column);
            for (const Instruction& i : segment.instructions) step(i, lanes, 1);
            for (int p : segment.used) table_[static_cast<size_t>(p)] += lanes;
        }
    }

    void run_tile(const Segment& segment, int64_t row, int64_t rows) {
        for (int p : segment.loads)
            for (int64_t r = 0; r < rows; ++r)
                copy_row(where_[static_cast<size_t>(p)].row(row + r), hidden_, table_[static_cast<size_t>(p)] + r * padded_);
        for (int s = 0; s < code_.sums; ++s) table_[first_sum_ + static_cast<size_t>(s)] = sums_ + s * padded_;
        for (const Instruction& i : segment.instructions) step(i, rows * padded_, rows);
        for (int p : segment.stores)
            for (int64_t r = 0; r < rows; ++r)
                copy_row(table_[static_cast<size_t>(p)] + r * padded_, hidden_, where_[static_cast<size_t>(p)].row(row + r));
    }

    void step(const Instruction& instruction, int64_t n, int64_t rows) {
        using V = Vec<T>;
        T* d = table_[static_cast<size_t>(instruction.target)];
        const T* a = table_[static_cast<size_t>(instruction.a)];
        const T* b = table_[static_cast<size_t>(instruction.b)];
        const T* c = table_[static_cast<size_t>(instruction.c)];
        const V zero{}, one = all(T(1));
        switch (instruction.op) {
            case Op::copy: return each(n, d, a, [](V x) { return x; });
            case Op::add: return each(n, d, a, b, [](V x, V y) { return x + y; });
            case Op::sub: return each(n, d, a, b, [](V x, V y) { return x - y; });
            case Op::mul: return each(n, d, a, b, [](V x, V y) { return x * y; });
            case Op::div: return each(n, d, a, b, [](V x, V y) { return x / y; });
            case Op::maximum: return each(n, d, a, b, [](V x, V y) { return x != x ? x : (x > y ? x : y); });
            case Op::minimum: return each(n, d, a, b, [](V x, V y) { return x != x ? x : (x < y ? x : y); });
            case Op::lt: return each(n, d, a, b, [=](V x, V y) { return x < y ? one : zero; });
            case Op::le: return each(n, d, a, b, [=](V x, V y) { return x <= y ? one : zero; });
            case Op::eq: return each(n, d, a, b, [=](V x, V y) { return x == y ? one : zero; });
            case Op::neg: return each(n, d, a, [](V x) { return -x; });
            case Op::abs: return each(n, d, a, [](V x) { return x < T(0) ? -x : x + T(0); });
            case Op::sqrt: return each(n, d, a, [](V x) { return sqrt_vector(x); });
            case Op::rsqrt: return each(n, d, a, [](V x) { return T(1) / sqrt_vector(x); });
            case Op::exp: return each(n, d, a, [](V x) { return exp_vector<T>(x); });
            case Op::log: return each(n, d, a, [](V x) { return log_vector<T>(x); });
            case Op::tanh: return each(n, d, a, [](V x) { return tanh_vector(x); });
            case Op::sigmoid: return each(n, d, a, [](V x) { return sigmoid_vector<T>(x); });
            case Op::relu: return each(n, d, a, [=](V x) { return x < T(0) ? zero : x; });
            case Op::select: return each(n, d, a, b, c, [](V x, V y, V z) { return x != T(0) ? y : z; });
            case Op::multiply_add: return each(n, d, a, b, c, [](V x, V y, V z) { return x * y + z; });
            case Op::d_tanh: return each(n, d, a, b, [](V g, V y) { return g - g * y * y; });
            case Op::d_sigmoid: return each(n, d, a, b, [](V g, V y) { return g * (y - y * y); });
            case Op::mean: return mean(d, a, rows);
            case Op::accumulate:
                for (int64_t r = 0; r < rows; ++r)
                    each(n / rows, d, d, a + r * padded_, [](V x, V y) { return x + y; });
        }
    }

    void mean(T* d, const T* a, int64_t rows) {
        for (int64_t r = 0; r < rows; ++r, a += padded_, d += padded_) {
            Vec<T> even{}, odd{};
            int64_t i = 0;
            for (; i + 2 * kWidth<T> <= hidden_; i += 2 * kWidth<T>) {
                even += load(a + i);
                odd += load(a + i + kWidth<T>);
            }
            T lanes[kWidth<T>];
            store(lanes, even + odd);
            for (; i < hidden_; ++i) lanes[i % kWidth<T>] += a[i];
            for (int half = kWidth<T> / 2; half; half /= 2)
                for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
            const Vec<T> value = all(lanes[0] / static_cast<T>(hidden_));
            for (i = 0; i < padded_; i += kWidth<T>) store(d + i, value);
        }
    }

    const Code& code_;
    int64_t hidden_, padded_;
    bool direct_;
    T* sums_;
    int64_t tile_rows_, chunk_;
    std::vector<Where<T>> where_;
    std::vector<T*> table_;
    size_t first_sum_;
};

}  // namespace weft
