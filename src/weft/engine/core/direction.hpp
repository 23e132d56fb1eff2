// One direction of one layer: its memory, its rows in order of length, and their division into tasks.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "panels.hpp"
#include "program.hpp"
#include "threads.hpp"

namespace weft {

inline bool lengths_in_range(const int64_t* lengths, int64_t rows, int64_t steps) {
    return !lengths ||
           std::all_of(lengths, lengths + rows, [&](int64_t length) { return length >= 0 && length <= steps; });
}

// The rows of a batch. Tokens are the steps of all rows without padding, row after row; positions are the B x T places
// of the padded batch.
struct Rows {
    int64_t count, steps, tokens = 0;
    const int64_t* lengths;          // nullptr: all rows have `steps`
    std::vector<int64_t> offsets;    // the first token of each row
    std::vector<int64_t> positions;  // the position of each token; empty: they are the same
    std::vector<int64_t> order;      // longest first

    Rows(int64_t count, int64_t steps, const int64_t* lengths)
        : count(count), steps(steps), lengths(lengths), offsets(static_cast<size_t>(count)),
          order(static_cast<size_t>(count)) {
        if (lengths) positions.reserve(static_cast<size_t>(count * steps));
        for (int64_t b = 0; b < count; ++b) {
            offsets[static_cast<size_t>(b)] = tokens;
            for (int64_t t = 0; lengths && t < lengths[b]; ++t) positions.push_back(b * steps + t);
            tokens += lengths ? lengths[b] : steps;
        }
        std::iota(order.begin(), order.end(), 0);
        if (lengths)
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    }
};

// Bytes of weights that stay in the second-level cache of a core: five eighths of it. Where its size is not known, 1 MB
// is assumed. Results do not depend on it.
inline int64_t cached_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    static const int64_t size = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    constexpr int64_t size = 0;
#endif
    return (size > 0 ? size : int64_t(1) << 20) / 8 * 5;
}

template <typename T>
struct LayerWeights;

// One cell over the rows in one direction: what a call works with. Python passes an abi::Direction for each.
template <typename T>
struct CellRun {
    const Program* program;
    const LayerWeights<T>* kept_weights = nullptr;  // packed in an earlier call; nullptr: this call packs them
    int64_t rows, steps, tokens, inputs;            // inputs: features of x, or the size of the vocabulary
    bool reverse, train;
    Precision precision;  // of products
    const int64_t *lengths, *offsets, *positions,
        *order;            // as Rows has them; nullptr where there is no padding
    const int64_t* ids;    // (B, T), or nullptr and
    const T* x;            // (B, T, inputs); or both,
    int64_t distinct = 0;  // and x has so many rows: ids say which of them is read where
    T* kept;               // (tokens, program->kept()): values kept for the backward pass
    bool half_kept;        // they are in bfloat16: GATES and EXTRA point to numbers of 16 bits
    T* d_x;                // (B, T, inputs), or nullptr: not wanted
    T* base[BUFFERS];
    int64_t stride[BUFFERS];
    bool by_id = false;           // a row of INPUT is that of a token's id, not that of the token
    bool fused_input = false;     // the time loop projects its input itself
    T* bias = nullptr;            // of the projected input
    T* sums;                      // gradients of vectors, summed over rows and steps: (groups, sums, padded H)
    std::vector<T*> first, last;  // states before and after, one pointer a part; may be nullptr
    std::vector<const T*> parameters;
    std::vector<T*> gradients;  // of parameters; nullptr: not wanted

    int64_t length(int64_t row) const { return lengths ? lengths[row] : steps; }
    int64_t forward_columns(size_t k) const {
        return round_up(program->products[k].blocks() * program->hidden, kPanel<T>);
    }
    int64_t input_columns() const { return round_up(program->width(), kPanel<T>); }
    int64_t backward_columns() const { return round_up(program->hidden, kPanel<T>); }
    int64_t sums_of_group() const { return program->backward.sums * round_up(program->hidden, kWidth<T>); }

    // Whether all weights stay in the second-level cache from step to step.
    bool has_small_weights() const {
        int64_t words = panel_words(precision, inputs) * input_columns();
        for (size_t k = 0; k < program->products.size(); ++k)
            words += panel_words(precision, program->hidden) * forward_columns(k);
        return words * static_cast<int64_t>(sizeof(T)) <= cached_bytes();
    }

    std::vector<WeightBlock<T>> weights(size_t k) const {
        std::vector<WeightBlock<T>> blocks;
        for (const BlockSource& from : program->products[k].weights) {
            const int64_t row = program->parameters[static_cast<size_t>(from.parameter)].row;
            const T* weight = parameters[static_cast<size_t>(from.parameter)];
            blocks.push_back({.data = weight + from.start * (from.transposed ? 1 : row),
                              .stride = row,
                              .transposed = from.transposed});
        }
        return blocks;
    }

    void put(Buffer buffer, T* memory, int64_t row) {
        base[buffer] = memory;
        stride[buffer] = row;
    }
};

// Rows of one direction that one thread takes through all their steps, longest first.
struct Task {
    size_t call;
    std::vector<int64_t> rows, groups;  // groups: of each row, the group whose sums it is added to
};

template <typename T>
bool ids_in_range(const CellRun<T>& call) {
    if (!call.ids || call.distinct) return true;
    for (int64_t b = 0; b < call.rows; ++b)
        for (int64_t t = 0; t < call.length(b); ++t) {
            const int64_t id = call.ids[b * call.steps + t];
            if (id < 0 || id >= call.inputs) return false;
        }
    return true;
}

// Gradients of biases and vectors are sums over rows. Which rows are added first must not depend on the threads, so
// each group of rows has sums of its own, which are added in the order of the groups. A task has whole groups: there
// are enough of them for every thread to have at least kTileRows rows, or one row each of a small batch.
constexpr int64_t kGroups = 32;

inline int64_t groups_of(int64_t rows) { return std::min(rows, std::max(kGroups, rows / kTileRows)); }

// Rows that each of two tasks a thread has, at least. A task reads all weights at each step: with 16 registers, fewer
// rows than two tiles wait for them.
constexpr int64_t kTaskRows = kTileRows < 8 ? 2 * kTileRows : kTileRows;

// Deals groups to tasks in a serpentine order, longest first, so that all tasks get long and short rows. Two tasks a
// thread where they fill the kernel: if a thread is suspended, another takes the task that it has not begun.
template <typename T>
std::vector<Task> divide(const std::vector<CellRun<T>>& calls, int64_t threads) {
    std::vector<Task> tasks;
    const int64_t share = std::max<int64_t>(1, threads / static_cast<int64_t>(calls.size()));
    for (size_t c = 0; c < calls.size(); ++c) {
        const CellRun<T>& call = calls[c];
        const int64_t groups = groups_of(call.rows);
        const int64_t wanted = threads > 1 && call.rows >= 2 * share * kTaskRows ? 2 * share : share;
        const int64_t parts = std::max<int64_t>(1, std::min(wanted, groups));
        const size_t first = tasks.size();
        for (int64_t p = 0; p < parts; ++p) {
            tasks.push_back({.call = c, .rows = {}, .groups = {}});
            tasks.back().rows.reserve(static_cast<size_t>(call.rows / parts + 1));
        }
        for (int64_t group = 0; group < groups; ++group) {
            const int64_t turn = group % (2 * parts);
            Task& task = tasks[first + static_cast<size_t>(turn < parts ? turn : 2 * parts - 1 - turn)];
            for (int64_t i = call.rows * group / groups; i < call.rows * (group + 1) / groups; ++i) {
                task.rows.push_back(call.order[i]);
                task.groups.push_back(group);
            }
        }
    }
    return tasks;
}

}  // namespace weft
