// An output layer and its cross-entropy in one: logits of rows of x, and the loss of each target.
//
// Only positions that have a target are computed. To train, the derivative of a position's loss replaces its logits, so
// the largest matrix of a training step is written once.
#pragma once

#include <cmath>

#include "dropout.hpp"
#include "gemm.hpp"

namespace weft {

template <typename T>
struct CrossEntropy : abi::CrossEntropyCall<T> {
    using Base = abi::CrossEntropyCall<T>;
    using Base::inputs, Base::lengths, Base::rows, Base::steps, Base::targets;
    Dropout dropout;
    std::vector<int64_t> positions;  // the positions that have a target

    explicit CrossEntropy(const Base& call) : Base(call), dropout(read_dropout(call.keep, call.seed)) {
        for (int64_t b = 0; b < rows; ++b)
            for (int64_t t = b * steps; t < b * steps + (lengths ? lengths[b] : steps); ++t)
                if (targets[t] != this->ignore_index) positions.push_back(t);
    }
    int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
    bool ids_in_range() const {
        return std::all_of(positions.begin(), positions.end(),
                           [&](int64_t at) { return targets[at] >= 0 && targets[at] < this->classes; });
    }

    void drop(int64_t position, T factor, const T* from, T* to) const {
        drop_position(dropout, this->shared_over_time != 0, steps, position, inputs, factor, from, to);
    }

    // Clears the elements of all positions that have no target.
    void clear_others(T* values) const {
        int64_t next = 0;
        for (int64_t position : positions) {
            std::fill(values + next * inputs, values + position * inputs, T(0));
            next = position + 1;
        }
        std::fill(values + next * inputs, values + rows * steps * inputs, T(0));
    }

    template <typename Work>
    void each_position(int64_t threads, const Work& work) const {
        const int64_t some = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, inputs));
        parallel((tokens() + some - 1) / some, threads, [&](int64_t part) {
            for (int64_t n = part * some; n < std::min(tokens(), (part + 1) * some); ++n)
                work(n, positions[static_cast<size_t>(n)]);
        });
    }
};

// The loss of one row of logits. With `keep`, the derivative of the loss replaces the logits.
template <typename T>
T loss_of_row(T* row, int64_t size, int64_t target, T smoothing, bool keep) {
    constexpr int W = kWidth<T>;
    Vec<T> most = all(row[0]), totals{}, sums{};
    int64_t j = 0;
    for (; j + W <= size; j += W) {
        const Vec<T> x = load(row + j);
        most = x > most ? x : most;
        totals += x;
    }
    T top = row[0], total = 0;
    for (int lane = 0; lane < W; ++lane) top = std::max(top, most[lane]), total += totals[lane];
    for (; j < size; ++j) top = std::max(top, row[j]), total += row[j];

    const T spread = smoothing != T(0) ? smoothing * (total / static_cast<T>(size) - top) : T(0),
            target_logit = row[target] - top;
    T tail[W] = {}, sum = 0;
    for (j = 0; j + W <= size; j += W) {
        const Vec<T> power = exp_vector<T>(load(row + j) - top);
        sums += power;
        if (keep) store(row + j, power);
    }
    for (int64_t i = j; i < size; ++i) tail[i - j] = row[i] - top;
    store(tail, exp_vector<T>(load(tail)));
    for (int64_t i = j; i < size; ++i) {
        sum += tail[i - j];
        if (keep) row[i] = tail[i - j];
    }
    for (int lane = 0; lane < W; ++lane) sum += sums[lane];
    if (keep) {
        const T share = T(1) / sum, less = smoothing / static_cast<T>(size);
        for (j = 0; j < size; ++j) row[j] = row[j] * share - less;
        row[target] -= T(1) - smoothing;
    }
    return std::log(sum) - (T(1) - smoothing) * target_logit - spread;
}

template <typename T>
Status cross_entropy(const abi::CrossEntropyCall<T>& call) {
    static thread_local Workspace workspace;
    if (!lengths_in_range(call.lengths, call.rows, call.steps)) return Status::length_out_of_range;
    const CrossEntropy<T> output(call);
    const int64_t threads = call.threads;
    const T smoothing = static_cast<T>(call.label_smoothing);
    if (!output.ids_in_range()) return Status::id_out_of_range;
    if (!output.sum) std::fill_n(output.losses, output.rows * output.steps, T(0));
    const int64_t N = output.tokens();
    Arena<T> arena;
    T* read = nullptr;
    Gemm<T> work{.rows = N,
                 .columns = output.classes,
                 .depth = output.inputs,
                 .a_row = output.inputs,
                 .a_depth = 1,
                 .b = output.weight,
                 .b_depth = 1,
                 .b_column = output.inputs,
                 .c = output.d_logits,
                 .c_row = output.classes,
                 .start = output.bias};
    arena.ask(read, N * output.inputs);
    work.precision = precision_of<T>(output.precision);
    arena.ask(work.packed, work.packed_size());
    arena.settle(workspace);
    Jobs jobs;
    for (int64_t p = 0; p < work.panels(); ++p) jobs.add(work.depth * kPanel<T>, [&work, p] { pack_panel(work, p); });
    jobs.run(threads);
    output.each_position(threads, [&](int64_t n, int64_t position) {
        output.drop(position, T(1), output.x + position * output.inputs, read + n * output.inputs);
    });
    std::vector<double> sums(static_cast<size_t>(work.blocks()), 0.0);
    for (int64_t block = 0; block < work.blocks(); ++block)
        jobs.add(kBlockRows * output.inputs * output.classes, [&, block] {
            static thread_local Workspace beside;
            const int64_t first = block * kBlockRows, some = std::min(kBlockRows, N - first);
            Gemm<T> part = work;
            part.rows = some;
            part.a = read + first * output.inputs;
            part.c =
                output.d_logits ? output.d_logits + first * output.classes : beside.elements<T>(some * output.classes);
            multiply_block<T>({&part}, 0);
            for (int64_t n = 0; n < some; ++n) {
                const int64_t position = output.positions[static_cast<size_t>(first + n)];
                const T loss = loss_of_row(part.c + n * output.classes, output.classes, output.targets[position],
                                           smoothing, output.d_logits != nullptr);
                if (output.sum)
                    sums[static_cast<size_t>(block)] += static_cast<double>(loss);
                else
                    output.losses[position] = loss;
            }
            beside.trim();
        });
    jobs.run(threads);
    if (output.sum) *output.losses = static_cast<T>(std::accumulate(sums.begin(), sums.end(), 0.0));
    workspace.trim();
    return Status::ok;
}

template <typename T>
Status cross_entropy_backward(const abi::CrossEntropyCall<T>& call) {
    static thread_local Workspace workspace;
    if (!lengths_in_range(call.lengths, call.rows, call.steps)) return Status::length_out_of_range;
    const CrossEntropy<T> output(call);
    T *const d_x = call.d_x, *const d_weight = call.d_weight, *const d_bias = call.d_bias;
    const int64_t threads = call.threads;
    const int64_t N = output.tokens(), I = output.inputs, V = output.classes;
    T *read = nullptr, *factors = nullptr;
    Arena<T> arena;
    arena.ask(read, d_weight ? N * I : 0);
    arena.ask(factors, N);
    Gemms<T> products;
    const int to_weight = d_weight ? products.add({.rows = V,
                                                   .columns = I,
                                                   .depth = N,
                                                   .a = output.d_logits,
                                                   .a_row = 1,
                                                   .a_depth = V,
                                                   .b_depth = I,
                                                   .b_column = 1,
                                                   .c = d_weight,
                                                   .c_row = I})
                                   : -1;
    const int to_bias = d_bias ? products.add({.rows = V,
                                               .columns = 1,
                                               .depth = N,
                                               .a = output.d_logits,
                                               .a_row = 1,
                                               .a_depth = V,
                                               .b_depth = 1,
                                               .b_column = 1,
                                               .c = d_bias,
                                               .c_row = 1})
                               : -1;
    if (d_x) {
        const int to_x = products.add({.rows = N,
                                       .columns = I,
                                       .depth = V,
                                       .a = output.d_logits,
                                       .a_row = V,
                                       .a_depth = 1,
                                       .b = output.weight,
                                       .b_depth = I,
                                       .b_column = 1,
                                       .c = d_x,
                                       .c_row = I});
        products[to_x].c_index = output.positions.data();
    }
    for (int number = 0; number < products.count(); ++number)
        if (number != to_bias) products[number].precision = precision_of<T>(output.precision);  // a bias has no product
    products.ask(arena);
    arena.settle(workspace);
    if (d_weight) products[to_weight].b = read;
    if (d_bias) products[to_bias].b = factors;
    output.each_position(threads, [&](int64_t n, int64_t position) {
        factors[n] = call.d_losses[position * call.d_losses_stride];
        if (d_weight) output.drop(position, factors[n], output.x + position * I, read + n * I);
    });
    if (d_x) output.clear_others(d_x);
    Jobs jobs;
    products.pack(jobs, false);
    jobs.run(threads);
    products.multiply(jobs);
    jobs.run(threads);
    if (d_x)
        output.each_position(threads, [&](int64_t n, int64_t position) {
            output.drop(position, factors[n], d_x + position * I, d_x + position * I);
        });
    workspace.trim();
    return Status::ok;
}

}  // namespace weft
