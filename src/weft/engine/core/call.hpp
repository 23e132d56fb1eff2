// One call: the memory Python hands over, the rows in order of length, and their division into tasks.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "code.hpp"
#include "product.hpp"
#include "threads.hpp"

namespace weft {

template <typename T>
struct Call {
    const Program* program;
    int64_t rows, steps, vocabulary;
    bool reverse, train;
    const int64_t* lengths;  // nullptr: all rows have `steps`
    const int64_t* ids;      // nullptr: the input is already projected; else row (b, t) of it is ids[b * steps + t]
    T* base[BUFFERS];
    int64_t stride[BUFFERS];
    T* sums;                                       // gradients of vectors, summed over rows and steps
    std::vector<T*> first, last;                   // states before and after, one pointer a part; may be nullptr
    std::vector<std::vector<WeightBlock<T>>> weights;  // of each product
    std::vector<const T*> packed;                  // of each product, once packed

    int64_t length(int64_t row) const { return lengths ? lengths[row] : steps; }
    int64_t forward_columns(size_t k) const {
        return round_up(program->products[k].blocks() * program->hidden, kPanel<T>);
    }
    int64_t back_columns() const { return round_up(program->hidden, kPanel<T>); }
};

// Rows of one call that one thread takes through all their steps, longest first.
struct Task {
    size_t call;
    std::vector<int64_t> rows;
};

template <typename T>
Call<T> read_call(const int64_t* data, bool back) {
    Call<T> call;
    auto pointer = [](int64_t address) { return reinterpret_cast<T*>(address); };
    call.program = reinterpret_cast<const Program*>(*data++);
    call.rows = *data++;
    call.steps = *data++;
    call.vocabulary = *data++;
    call.reverse = *data++ != 0;
    call.train = *data++ != 0;
    call.lengths = reinterpret_cast<const int64_t*>(*data++);
    call.ids = reinterpret_cast<const int64_t*>(*data++);
    for (int b = 0; b < BUFFERS; ++b) {
        call.base[b] = pointer(*data++);
        call.stride[b] = *data++;
    }
    call.sums = pointer(*data++);
    for (int64_t i = 0; i < call.program->states; ++i) call.first.push_back(pointer(*data++));
    for (int64_t i = 0; i < call.program->states; ++i) call.last.push_back(pointer(*data++));
    for (const ProductShape& shape : call.program->products) {
        std::vector<WeightBlock<T>> blocks;
        for (int j = 0; j < shape.blocks(); ++j) {
            const T* weight = pointer(data[0]);
            blocks.push_back({weight, data[1], data[2] != 0});
            data += 3;
        }
        call.weights.push_back(blocks);
        call.packed.push_back(nullptr);
    }
    (void)back;
    return call;
}

template <typename T>
bool ids_fit(const Call<T>& call) {
    if (!call.ids) return true;
    for (int64_t b = 0; b < call.rows; ++b)
        for (int64_t t = 0; t < call.length(b); ++t) {
            const int64_t id = call.ids[b * call.steps + t];
            if (id < 0 || id >= call.vocabulary) return false;
        }
    return true;
}

// Longest rows first, dealt to and fro so that every task gets long ones and short ones.
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
        const size_t parts = static_cast<size_t>(std::max<int64_t>(1, std::min(share, call.rows)));
        const size_t first = tasks.size();
        for (size_t p = 0; p < parts; ++p) tasks.push_back({c, {}});
        for (size_t i = 0; i < rows.size(); ++i) {
            const size_t turn = i % (2 * parts);
            tasks[first + (turn < parts ? turn : 2 * parts - 1 - turn)].rows.push_back(rows[i]);
        }
    }
    return tasks;
}

// Packs the recurrent weights of all calls, all threads together.
template <typename T>
void pack(std::vector<Call<T>>& calls, bool back, int64_t threads) {
    static thread_local Workspace workspace;
    struct Piece {
        size_t call, product;
        int64_t panel;
    };
    std::vector<Piece> pieces;
    int64_t size = 0;
    for (Call<T>& call : calls)
        for (size_t k = 0; k < call.weights.size(); ++k)
            size += call.program->hidden * (back ? call.back_columns() * call.program->products[k].blocks() : call.forward_columns(k));
    T* next = workspace.numbers<T>(size);
    for (size_t c = 0; c < calls.size(); ++c)
        for (size_t k = 0; k < calls[c].weights.size(); ++k) {
            Call<T>& call = calls[c];
            call.packed[k] = next;
            const int64_t columns = back ? call.back_columns() : call.forward_columns(k);
            next += call.program->hidden * columns * (back ? call.program->products[k].blocks() : 1);
            for (int64_t p = 0; p < columns / kPanel<T>; ++p) pieces.push_back({c, k, p});
        }
    const int64_t groups = size < 65536 ? 1 : std::min<int64_t>(threads * 4, static_cast<int64_t>(pieces.size()));
    parallel(groups, threads, [&](int64_t g) {
        const size_t from = pieces.size() * static_cast<size_t>(g) / static_cast<size_t>(groups);
        const size_t to = pieces.size() * static_cast<size_t>(g + 1) / static_cast<size_t>(groups);
        for (size_t i = from; i < to; ++i) {
            const Call<T>& call = calls[pieces[i].call];
            const auto& blocks = call.weights[pieces[i].product];
            T* packed = const_cast<T*>(call.packed[pieces[i].product]);
            const auto count = static_cast<int64_t>(blocks.size());
            if (back)
                pack_back(blocks.data(), count, call.program->hidden, pieces[i].panel, packed);
            else
                pack_forward(blocks.data(), count, call.program->hidden, pieces[i].panel, packed);
        }
    });
}

}  // namespace weft
