// The k most probable classes of each row by an output layer, without writing all logits to memory.
//
// The weight is packed once for many calls: panels as gemm.hpp has them, then the bias, which is minus infinity in the
// columns that pad the last panel.
#pragma once

#include <cmath>
#include <limits>

#include "gemm.hpp"

namespace weft {

constexpr int64_t kChunkPanels = 32;  // their logits for a block of rows fit into the second-level cache
constexpr int64_t kEnoughBlocks = 8;  // blocks of rows; with fewer, threads divide the columns too

template <typename T>
constexpr T kNever = -std::numeric_limits<T>::infinity();

template <typename T>
Status pack_output_layer(const abi::PackCall<T>& call) {
    const int64_t size = call.classes, inputs = call.inputs, panels = (size + kPanel<T> - 1) / kPanel<T>;
    const T *weight = call.weight, *bias = call.bias;
    T* packed = call.packed;
    Jobs jobs;
    for (int64_t p = 0; p < panels; ++p)
        jobs.add(inputs * kPanel<T>,
                 [=] { pack_transposed(weight, inputs, size, p, packed + p * kPanel<T> * inputs); });
    jobs.run(call.threads);
    T* start = packed + panels * kPanel<T> * inputs;
    for (int64_t i = 0; i < panels * kPanel<T>; ++i) start[i] = i >= size ? kNever<T> : bias ? bias[i] : T(0);
    return Status::ok;
}

// The k largest logits of a row so far, best first, their ids, and the sum of exp(logit - most) over all logits.
template <typename T>
struct TopKRow {
    T *values, *sums;  // sums: most, sum
    int64_t *ids, k;

    void begin() const {
        std::fill_n(values, k, kNever<T>);
        std::fill_n(ids, k, int64_t(0));
        sums[0] = kNever<T>, sums[1] = T(0);
    }
    void take(T value, int64_t id) const {
        int64_t rank = k - 1;
        if (!(value > values[rank])) return;
        for (; rank > 0 && value > values[rank - 1]; --rank) values[rank] = values[rank - 1], ids[rank] = ids[rank - 1];
        values[rank] = value, ids[rank] = id;
    }
    void add(T most, T sum) const {     // sum is that of exp(logit - most)
        if (most == kNever<T>) return;  // all probabilities are zero
        if (most > sums[0]) {
            sums[1] = sums[1] * std::exp(sums[0] - most) + sum;
            sums[0] = most;
        } else {
            sums[1] += sum * std::exp(most - sums[0]);
        }
    }
    void take(const TopKRow& other) const {
        add(other.sums[0], other.sums[1]);
        for (int64_t i = 0; i < k; ++i) take(other.values[i], other.ids[i]);
    }
    void look(const T* logits, int64_t count, int64_t first) const {  // whole panels
        constexpr int64_t W = kWidth<T>;
        Vec<T> tops = load(logits), sum{};
        for (int64_t j = W; j < count; j += W) tops = larger<T>(load(logits + j), tops);
        const T most = largest<T>(tops), known = values[k - 1], least = known == kNever<T> ? worth_taking(tops) : known;
        if (most == kNever<T>) return;
        for (int64_t j = 0; j < count; j += W) {
            const Vec<T> x = load(logits + j), below = x - most, lowest = all(-Exponent<T>::bound);
            sum += exp_within<T>(below < lowest ? lowest : below);
            if (any(x >= least))
                for (int64_t i = j; i < j + W; ++i) take(logits[i], first + i);
        }
        add(most, total<T>(sum)[0]);
    }

  private:
    // A lower bound of the k-th largest logit: k lanes have a logit that is at least as large.
    T worth_taking(Vec<T> tops) const {
        if (k > kWidth<T> || any(tops != tops)) return kNever<T>;
        T ordered[kWidth<T>];
        store(ordered, tops);
        std::nth_element(ordered, ordered + k - 1, ordered + kWidth<T>, std::greater<T>());
        return ordered[k - 1];
    }
};

template <typename T>
Status top_k(const abi::TopKCall<T>& call) {
    static thread_local Workspace workspace, id_workspace;
    const int64_t rows = call.rows, inputs = call.inputs, size = call.classes, k = call.k, threads = call.threads;
    const T* x = call.x;
    T *packed = call.packed, *values = call.values;
    int64_t* ids = call.ids;
    Gemm<T> work{.rows = rows,
                 .columns = size,
                 .depth = inputs,
                 .a = x,
                 .a_row = inputs,
                 .a_depth = 1,
                 .b_depth = 1,
                 .b_column = inputs,
                 .c_row = kChunkPanels * kPanel<T>};
    const int64_t panels = work.panels(), chunks = (panels + kChunkPanels - 1) / kChunkPanels;
    const int64_t parts = work.blocks() < kEnoughBlocks ? chunks : 1;
    T *found = nullptr, *sums = nullptr;
    Arena<T> arena;
    arena.ask(found, parts * rows * k);
    arena.ask(sums, parts * rows * 2);
    arena.settle(workspace);
    int64_t* found_ids = id_workspace.elements<int64_t>(parts * rows * k);
    auto seen = [=](int64_t part, int64_t row) {
        const int64_t at = part * rows + row;
        return TopKRow<T>{found + at * k, sums + at * 2, found_ids + at * k, k};
    };
    Jobs jobs;
    for (int64_t block = 0; block < work.blocks(); ++block)
        for (int64_t part = 0; part < parts; ++part)
            jobs.add(kBlockRows * inputs * size / parts, [&, block, part] {
                static thread_local Workspace beside;
                const int64_t first = block * kBlockRows, some = std::min(kBlockRows, rows - first);
                for (int64_t r = 0; r < some; ++r) seen(part, first + r).begin();
                Gemm<T> piece = work;
                piece.rows = some;
                piece.a = x + first * inputs;
                piece.c = beside.elements<T>(some * piece.c_row);
                for (int64_t p = part * kChunkPanels; p < panels; p += parts * kChunkPanels) {
                    piece.columns = std::min(kChunkPanels, panels - p) * kPanel<T>;
                    piece.packed = packed + p * kPanel<T> * inputs;
                    piece.start = packed + (panels * inputs + p) * kPanel<T>;
                    multiply_block<T>({&piece}, 0);
                    for (int64_t r = 0; r < some; ++r)
                        seen(part, first + r).look(piece.c + r * piece.c_row, piece.columns, p * kPanel<T>);
                }
            });
    jobs.run(threads);
    for (int64_t block = 0; block < work.blocks(); ++block)
        jobs.add(kBlockRows * parts * k, [&, block] {
            for (int64_t row = block * kBlockRows; row < std::min(rows, (block + 1) * kBlockRows); ++row) {
                const TopKRow<T> best = seen(0, row);
                for (int64_t part = 1; part < parts; ++part) best.take(seen(part, row));
                const T all = std::log(best.sums[1]);
                for (int64_t i = 0; i < k; ++i) values[row * k + i] = best.values[i] - best.sums[0] - all;
                std::copy_n(best.ids, k, ids + row * k);
            }
        });
    jobs.run(threads);
    return Status::ok;
}

}  // namespace weft
