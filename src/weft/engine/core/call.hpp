// One call: the memory Python hands over, the rows in order of length, and their division into tasks.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "code.hpp"
#include "product.hpp"
#include "threads.hpp"

namespace weft {

// Tokens are the steps of all rows without padding, row after row; places are the B x T of the batch.
template <typename T>
struct Call {
    const Program* program;
    int64_t rows, steps, tokens, inputs;  // inputs: numbers a token, or the size of the vocabulary
    bool reverse, train;
    const int64_t* lengths;  // nullptr: all rows have `steps`
    const int64_t* ids;      // (B, T), or nullptr and
    const T* x;              // (B, T, inputs)
    T* kept;                 // tokens x program->kept() from the way forward to the way back
    T* d_x;                  // (B, T, inputs), or nullptr: not wanted
    T* base[BUFFERS];
    int64_t stride[BUFFERS];
    bool by_id = false;                  // a row of INPUT is that of a token's id, not that of the token
    bool near = false;                   // the loop projects the input of each step, and keeps it for no one
    T* packed_input = nullptr;           // then: weight_ih packed, and where its sums begin
    T* bias = nullptr;
    T* sums;                             // gradients of vectors, summed over rows and steps
    std::vector<T*> first, last;         // states before and after, one pointer a part; may be nullptr
    std::vector<const T*> parameters;
    std::vector<T*> gradients;           // of parameters; nullptr: not wanted
    std::vector<T*> packed;              // of each product, once packed
    std::vector<int64_t> offsets;        // the first token of each row
    std::vector<int64_t> places;         // of all tokens; empty: they are the same

    int64_t length(int64_t row) const { return lengths ? lengths[row] : steps; }
    int64_t forward_columns(size_t k) const {
        return round_up(program->products[k].blocks() * program->hidden, kPanel<T>);
    }
    int64_t input_columns() const { return round_up(program->width(), kPanel<T>); }
    int64_t back_columns() const { return round_up(program->hidden, kPanel<T>); }
    const int64_t* index() const { return places.empty() ? nullptr : places.data(); }

    std::vector<WeightBlock<T>> weights(size_t k) const {
        std::vector<WeightBlock<T>> blocks;
        for (const BlockSource& from : program->products[k].weights) {
            const int64_t row = program->parameters[static_cast<size_t>(from.parameter)].row;
            const T* weight = parameters[static_cast<size_t>(from.parameter)];
            blocks.push_back({weight + from.start * (from.turned ? 1 : row), row, from.turned});
        }
        return blocks;
    }

    void put(Buffer buffer, T* memory, int64_t row) {
        base[buffer] = memory;
        stride[buffer] = row;
    }
};

// Rows of one call that one thread takes through all their steps, longest first.
struct Task {
    size_t call;
    std::vector<int64_t> rows;
};

template <typename T>
Call<T> read_call(const int64_t*& data) {
    Call<T> call;
    auto pointer = [&] { return reinterpret_cast<T*>(*data++); };
    auto numbers = [&] { return reinterpret_cast<const int64_t*>(*data++); };
    call.program = reinterpret_cast<const Program*>(*data++);
    call.rows = *data++;
    call.steps = *data++;
    call.tokens = *data++;
    call.inputs = *data++;
    call.reverse = *data++ != 0;
    call.train = *data++ != 0;
    call.lengths = numbers();
    call.ids = numbers();
    call.x = pointer();
    call.kept = pointer();
    call.d_x = pointer();
    const Program& program = *call.program;
    for (int b = 0; b < BUFFERS; ++b) call.put(static_cast<Buffer>(b), nullptr, 0);
    for (Buffer buffer : {OUTPUT, D_OUTPUT}) {
        T* memory = pointer();
        call.put(buffer, memory, *data++);
    }
    call.put(ROW_MASK, pointer(), program.hidden);
    call.put(STEP_MASK, pointer(), program.states * program.hidden);
    call.put(GATES, call.kept, program.width());
    call.put(EXTRA, call.kept + (call.kept ? call.tokens * program.width() : 0), program.extra * program.hidden);
    for (int64_t i = 0; i < program.states; ++i) call.first.push_back(pointer());
    for (int64_t i = 0; i < program.states; ++i) call.last.push_back(pointer());
    for (size_t i = 0; i < program.parameters.size(); ++i) call.parameters.push_back(pointer());
    for (size_t i = 0; i < program.parameters.size(); ++i) call.gradients.push_back(pointer());
    call.packed.resize(program.products.size());
    int64_t token = 0;
    for (int64_t b = 0; b < call.rows; token += call.length(b++)) {
        call.offsets.push_back(token);
        for (int64_t t = 0; call.lengths && t < call.length(b); ++t) call.places.push_back(b * call.steps + t);
    }
    return call;
}

template <typename T>
bool ids_fit(const Call<T>& call) {
    if (!call.ids) return true;
    for (int64_t b = 0; b < call.rows; ++b)
        for (int64_t t = 0; t < call.length(b); ++t) {
            const int64_t id = call.ids[b * call.steps + t];
            if (id < 0 || id >= call.inputs) return false;
        }
    return true;
}

// Longest rows first, dealt to and fro so that every task gets long ones and short ones. Two tasks a thread where they
// fill the kernel: when the system holds a thread up, another takes the task that it has not begun.
template <typename T>
std::vector<Task> divide(const std::vector<Call<T>>& calls, int64_t threads) {
    std::vector<Task> tasks;
    const int64_t share = std::max<int64_t>(1, threads / static_cast<int64_t>(calls.size()));
    for (size_t c = 0; c < calls.size(); ++c) {
        const Call<T>& call = calls[c];
        std::vector<int64_t> rows(static_cast<size_t>(call.rows));
        std::iota(rows.begin(), rows.end(), 0);
        if (call.lengths)
            std::stable_sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) { return call.lengths[a] > call.lengths[b]; });
        const int64_t wanted = threads > 1 && call.rows >= 2 * share * kTileRows ? 2 * share : share;
        const size_t parts = static_cast<size_t>(std::max<int64_t>(1, std::min(wanted, call.rows)));
        const size_t first = tasks.size();
        for (size_t p = 0; p < parts; ++p) tasks.push_back({c, {}});
        for (size_t i = 0; i < rows.size(); ++i) {
            const size_t turn = i % (2 * parts);
            tasks[first + (turn < parts ? turn : 2 * parts - 1 - turn)].rows.push_back(rows[i]);
        }
    }
    return tasks;
}

}  // namespace weft
