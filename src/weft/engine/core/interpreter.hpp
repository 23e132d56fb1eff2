// The interpreter of programs: runs one segment over some rows.
//
// Instructions refer to entries of a table that has a pointer for each row of a tile: several rows, or a piece of a
// long row. An instruction processes a whole tile, which makes the cost of dispatch small. If H is a multiple of the
// vector width, instructions read and write their places directly; otherwise rows are padded to whole vectors and
// copied in and out.
#pragma once

#include <algorithm>
#include <vector>

#include "gemm_kernel.hpp"
#include "program.hpp"

namespace weft {

// Elements of a tile, which an instruction processes at once: enough that its dispatch costs little, few enough that
// the values of a segment (2 KB each in float32) stay in the first-level cache between instructions.
constexpr int64_t kTileLanes = 512;

template <typename T>
inline void copy_row(const T* from, int64_t count, T* to) {  // rows are short: memcpy would cost more
    int64_t i = 0;
    for (; i + kWidth<T> <= count; i += kWidth<T>) store(to + i, load(from + i));
    for (; i < count; ++i) to[i] = from[i];
}

// d = f(from, ...) for each element of some rows; every operand has a pointer for each row.
template <typename T, typename F, typename... From>
inline void each(int64_t rows, int64_t lanes, T* const* d, F f, From... from) {
    for (int64_t r = 0; r < rows; ++r) {
        T* to = d[r];
        for (int64_t i = 0; i < lanes; i += kWidth<T>) store(to + i, f(load(from[r] + i)...));
    }
}

template <typename T>
class Interpreter {
  public:
    // `arena` holds arena_size() elements. `sums` has a pointer for each row, to H, padded, elements for each sum,
    // which are added to; rows may share them. `half_kept`: what is kept is in bfloat16 (Direction::half_kept).
    Interpreter(const Code& code, int64_t hidden, T* arena, std::vector<T*> sums, bool half_kept = false)
        : code_(code), hidden_(hidden), padded_(round_up(hidden, kWidth<T>)), direct_(is_direct(hidden)),
          sums_(std::move(sums)) {
        tile_rows_ = std::max<int64_t>(1, kTileLanes / padded_);
        chunk_ = direct_ && !code.whole_rows ? std::min(hidden, kTileLanes) : padded_;
        where_.resize(code.places.size());
        for (const Place& place : code.places)
            is_half_.push_back(half_kept && (place.buffer == GATES || place.buffer == EXTRA));
        const size_t entries =
            code.places.size() + code.constants.size() + static_cast<size_t>(code.sums + code.registers);
        table_.resize(entries * static_cast<size_t>(tile_rows_));
        size_t entry = 0;
        auto own = [&] {  // memory of its own for each row
            for (int64_t r = 0; r < tile_rows_; ++r, arena += chunk_) row(entry)[r] = arena;
            ++entry;
        };
        while (entry < code.places.size()) {
            if (direct_ && !is_half_[entry]) {
                ++entry;
                continue;
            }
            std::fill(arena, arena + tile_rows_ * chunk_, T(0));
            own();
        }
        for (double value : code.constants) {
            std::fill(arena, arena + chunk_, static_cast<T>(value));
            std::fill_n(row(entry++), tile_rows_, arena);
            arena += chunk_;
        }
        first_sum_ = entry;
        entry += static_cast<size_t>(code.sums);
        while (entry < entries) own();
    }

    static bool is_direct(int64_t hidden) { return hidden % kWidth<T> == 0; }

    static int64_t arena_size(const Code& code, int64_t hidden) {
        const int64_t padded = round_up(hidden, kWidth<T>);
        const int64_t lanes = std::max(kTileLanes, padded);
        return lanes *
               static_cast<int64_t>(code.places.size() + code.constants.size() + static_cast<size_t>(code.registers));
    }

    Where<T>& where(size_t place) { return where_[place]; }

    void run(const Segment& segment, int64_t rows) {
        for (int64_t r = 0; r < rows; r += tile_rows_) {
            const int64_t some = std::min(tile_rows_, rows - r);
            if (direct_)
                run_rows(segment, r, some);
            else
                run_copies(segment, r, some);
        }
    }

  private:
    T** row(size_t entry) { return table_.data() + entry * static_cast<size_t>(tile_rows_); }
    T** row(int entry) { return row(static_cast<size_t>(entry)); }

    bool is_half(int place) const { return is_half_[static_cast<size_t>(place)]; }
    uint16_t* half(int place, int64_t r) const {
        const Where<T>& where = where_[static_cast<size_t>(place)];
        return reinterpret_cast<uint16_t*>(where.base) + where.index[r] * where.stride;
    }

    void run_rows(const Segment& segment, int64_t first, int64_t rows) {
        for (int p : segment.used)
            for (int64_t r = 0; r < rows && !is_half(p); ++r) row(p)[r] = where_[static_cast<size_t>(p)].row(first + r);
        for (int64_t column = 0; column < hidden_; column += chunk_) {
            if (segment.accumulates) point_to_sums(first, rows, column);
            const int64_t lanes = std::min(chunk_, hidden_ - column);
            for (int p : segment.loads)
                for (int64_t r = 0; r < rows && is_half(p); ++r) expand(half(p, first + r) + column, lanes, row(p)[r]);
            for (const Instruction& i : segment.instructions) step(i, rows, lanes);
            for (int p : segment.stores)
                for (int64_t r = 0; r < rows && is_half(p); ++r)
                    compress(row(p)[r], lanes, half(p, first + r) + column);
            if (chunk_ < hidden_)
                for (int p : segment.used)
                    for (int64_t r = 0; r < rows && !is_half(p); ++r) row(p)[r] += lanes;
        }
    }

    void run_copies(const Segment& segment, int64_t first, int64_t rows) {
        for (int p : segment.loads)
            for (int64_t r = 0; r < rows; ++r)
                if (is_half(p))
                    expand(half(p, first + r), hidden_, row(p)[r]);
                else
                    copy_row(where_[static_cast<size_t>(p)].row(first + r), hidden_, row(p)[r]);
        if (segment.accumulates) point_to_sums(first, rows, 0);
        for (const Instruction& i : segment.instructions) step(i, rows, padded_);
        for (int p : segment.stores)
            for (int64_t r = 0; r < rows; ++r)
                if (is_half(p))
                    compress(row(p)[r], hidden_, half(p, first + r));
                else
                    copy_row(row(p)[r], hidden_, where_[static_cast<size_t>(p)].row(first + r));
    }

    void point_to_sums(int64_t first, int64_t rows, int64_t column) {
        T* const* own = sums_.data() + first;
        for (int s = 0; s < code_.sums; ++s) {
            T** const to = row(first_sum_ + static_cast<size_t>(s));
            for (int64_t r = 0; r < rows; ++r) to[r] = own[r] + s * padded_ + column;
        }
    }

    // A uniform value is computed on the first vector of a row and then repeated.
    void step(const Instruction& instruction, int64_t rows, int64_t n) {
        if (!instruction.uniform) return compute(instruction, rows, n);
        compute(instruction, rows, kWidth<T>);
        for (int64_t r = 0; r < rows; ++r) {
            T* to = row(instruction.target)[r];
            const Vec<T> value = load(to);
            for (int64_t i = kWidth<T>; i < n; i += kWidth<T>) store(to + i, value);
        }
    }

    void compute(const Instruction& instruction, int64_t rows, int64_t n) {
        using V = Vec<T>;
        T* const* d = row(instruction.target);
        T* const* a = row(instruction.a);
        T* const* b = row(instruction.b);
        T* const* c = row(instruction.c);
        const V zero{}, one = all(T(1));
        switch (instruction.op) {
            case Op::copy:
                return each<T>(
                    rows, n, d, [](V x) { return x; }, a);
            case Op::add:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x + y; }, a, b);
            case Op::sub:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x - y; }, a, b);
            case Op::mul:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x * y; }, a, b);
            case Op::div:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x / y; }, a, b);
            case Op::maximum:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x != x ? x : (x > y ? x : y); }, a, b);
            case Op::minimum:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x != x ? x : (x < y ? x : y); }, a, b);
            case Op::lt:
                return each<T>(
                    rows, n, d, [=](V x, V y) { return x < y ? one : zero; }, a, b);
            case Op::le:
                return each<T>(
                    rows, n, d, [=](V x, V y) { return x <= y ? one : zero; }, a, b);
            case Op::eq:
                return each<T>(
                    rows, n, d, [=](V x, V y) { return x == y ? one : zero; }, a, b);
            case Op::neg:
                return each<T>(
                    rows, n, d, [](V x) { return -x; }, a);
            case Op::abs:
                return each<T>(
                    rows, n, d, [](V x) { return x < T(0) ? -x : x + T(0); }, a);
            case Op::sqrt:
                return each<T>(
                    rows, n, d, [](V x) { return sqrt_vector(x); }, a);
            case Op::rsqrt:
                return each<T>(
                    rows, n, d, [](V x) { return T(1) / sqrt_vector(x); }, a);
            case Op::exp:
                return each<T>(
                    rows, n, d, [](V x) { return exp_vector<T>(x); }, a);
            case Op::log:
                return each<T>(
                    rows, n, d, [](V x) { return log_vector<T>(x); }, a);
            case Op::tanh:
                return each<T>(
                    rows, n, d, [](V x) { return tanh_vector(x); }, a);
            case Op::sigmoid:
                return each<T>(
                    rows, n, d, [](V x) { return sigmoid_vector<T>(x); }, a);
            case Op::relu:
                return each<T>(
                    rows, n, d, [=](V x) { return x < T(0) ? zero : x; }, a);
            case Op::select:
                return each<T>(
                    rows, n, d, [](V x, V y, V z) { return x != T(0) ? y : z; }, a, b, c);
            case Op::multiply_add:
                return each<T>(
                    rows, n, d, [](V x, V y, V z) { return x * y + z; }, a, b, c);
            case Op::d_tanh:
                return each<T>(
                    rows, n, d, [](V g, V y) { return g - g * y * y; }, a, b);
            case Op::d_sigmoid:
                return each<T>(
                    rows, n, d, [](V g, V y) { return g * (y - y * y); }, a, b);
            case Op::mean:
                return mean(
                    rows, d, [](V x) { return x; }, a);
            case Op::mean_product:
                return mean(
                    rows, d, [](V x, V y) { return x * y; }, a, b);
            case Op::accumulate:
                return each<T>(
                    rows, n, d, [](V x, V y) { return x + y; }, d, a);
        }
    }

    template <typename F, typename... Args>
    void mean(int64_t rows, T* const* to, F f, Args... args) {
        constexpr int chains = 4;
        constexpr int64_t several = chains * kWidth<T>;
        Ints<T> lanes;
        for (int lane = 0; lane < kWidth<T>; ++lane) lanes[lane] = lane;
        for (int64_t r = 0; r < rows; ++r) {
            Vec<T> sums[chains] = {};
            int64_t i = 0;
            for (; i + several <= hidden_; i += several)
                for (int j = 0; j < chains; ++j) sums[j] += f(load(args[r] + i + j * kWidth<T>)...);
            for (; i < hidden_; i += kWidth<T>) {  // padding does not count
                const auto left = static_cast<typename Lanes<T>::Integer>(hidden_ - i);
                sums[0] += lanes < left ? f(load(args[r] + i)...) : Vec<T>{};
            }
            store(to[r], total<T>(sums[0] + sums[1] + (sums[2] + sums[3])) / static_cast<T>(hidden_));
        }
    }

    const Code& code_;
    int64_t hidden_, padded_;
    bool direct_;
    std::vector<T*> sums_;
    int64_t tile_rows_, chunk_;
    std::vector<Where<T>> where_;
    std::vector<bool> is_half_;  // of places: values in bfloat16, which are copied in and out
    std::vector<T*> table_;
    size_t first_sum_;
};

}  // namespace weft
