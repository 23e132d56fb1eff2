// Products whose columns several threads divide.
//
// A step of few rows takes as long as reading its weights. Threads that divide the rows would each read all of them, so
// they divide the columns instead: each reads its part, which stays in its cache from step to step. All columns are
// sums of their own, so the results are the same bits.
#pragma once

#include "direction.hpp"
#include "thread_pool.hpp"

namespace weft {

constexpr int64_t kSharedBytes = int64_t(1) << 16;  // of a weight; one thread reads them in half a microsecond

// multiply(), in pieces of columns that the threads of a pool share. `last_first`: a thread that has all pieces begins
// with the last. If it does so at every other step, it begins with what is still in its cache.
template <typename T, typename Start>
void multiply_shared(ThreadPool& pool, int64_t rows, const Operand<T>& a, const Panels<T>& weight, int64_t columns,
                     T* c, int64_t c_stride, bool last_first, const Start& start) {
    constexpr int64_t unit = kTogether * kPanel<T>;
    auto some = [&](int64_t first, int64_t last) {
        const int64_t from = first * unit, to = std::min(last * unit, columns);
        Panels<T> piece = weight;
        piece.data = weight.panel(first * kTogether);
        multiply(rows, a, piece, to - from, c + from, c_stride, [&](int64_t n) { return start(from + n); });
    };
    const int64_t pieces = (columns + unit - 1) / unit;
    if (weight.words() * columns * static_cast<int64_t>(sizeof(T)) < kSharedBytes)
        some(0, pieces);
    else if (last_first && pool.is_alone())
        for (int64_t piece = pieces; piece-- > 0;) some(piece, piece + 1);
    else
        pool.parallel_for(pieces, some);
}

constexpr int64_t kColumnBytes = int64_t(1) << 17;  // of weights that a thread reads between two barriers, at least
constexpr int64_t kColumnWork = int64_t(1) << 22;   // bytes that a loop reads in all steps, at least

// How many threads divide the columns of a loop's products; 1: they divide the rows.
template <typename T>
int64_t threads_for_columns(const std::vector<CellRun<T>>& calls, int64_t threads) {
    const auto directions = static_cast<int64_t>(calls.size());
    const CellRun<T>& call = calls[0];
    if (directions >= threads || directions * call.rows > 2 * threads) return 1;
    int64_t bytes = 0;  // of the smallest product
    for (size_t k = 0; k < call.program->products.size(); ++k) {
        const int64_t words = panel_words(call.precision, call.program->hidden) * call.forward_columns(k);
        bytes = k ? std::min(bytes, words * int64_t(sizeof(T))) : words * int64_t(sizeof(T));
    }
    if (bytes * call.steps < kColumnWork) return 1;
    return std::max<int64_t>(1, std::min(threads, bytes / kColumnBytes));
}

// Runs the loops of tasks by work(task number, pool): one after the other by threads that divide columns, or at once.
template <typename Work>
void run_loops(int64_t tasks, int64_t threads, int64_t column_threads, const Work& work) {
    if (column_threads <= 1)
        return parallel(tasks, threads, [&](int64_t i) {
            ThreadPool alone;
            work(i, alone);
        });
    ThreadPool pool;
    pool.run(column_threads, [&] {
        for (int64_t i = 0; i < tasks; ++i) work(i, pool);
    });
}

}  // namespace weft
