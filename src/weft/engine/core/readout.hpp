// The output layer and its cost in one: rows of x times a weight, and the nats of the id wanted after each.
//
// Only places that want an id are read out. Where the way back will come, what stands for a place's logits afterwards
// is the derivative of its nats, so that the largest table of a training step is written once.
#pragma once

#include <cmath>

#include "large.hpp"
#include "noise.hpp"

namespace weft {

template <typename T>
struct Readout : abi::CrossEntropyCall<T> {
    using Base = abi::CrossEntropyCall<T>;
    using Base::inputs, Base::lengths, Base::rows, Base::steps, Base::targets;
    Noise noise;
    std::vector<int64_t> places;  // the positions that have a target

    explicit Readout(const Base& call) : Base(call), noise(read_noise(call.keep, call.seed)) {
        for (int64_t b = 0; b < rows; ++b)
            for (int64_t t = b * steps; t < b * steps + (lengths ? lengths[b] : steps); ++t)
                if (targets[t] != this->ignore_index) places.push_back(t);
    }
    int64_t tokens() const { return static_cast<int64_t>(places.size()); }
    bool ids_fit() const {
        return std::all_of(places.begin(), places.end(),
                           [&](int64_t at) { return targets[at] >= 0 && targets[at] < this->classes; });
    }

    void drop(int64_t place, T factor, const T* from, T* to) const {
        drop_place(noise, this->shared_over_time != 0, steps, place, inputs, factor, from, to);
    }

    // Zeros for the numbers of all other places.
    void clear_others(T* numbers) const {
        int64_t next = 0;
        for (int64_t place : places) {
            std::fill(numbers + next * inputs, numbers + place * inputs, T(0));
            next = place + 1;
        }
        std::fill(numbers + next * inputs, numbers + rows * steps * inputs, T(0));
    }

    template <typename Work>
    void each_place(int64_t threads, const Work& work) const {
        const int64_t some = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, inputs));
        parallel((tokens() + some - 1) / some, threads, [&](int64_t part) {
            for (int64_t n = part * some; n < std::min(tokens(), (part + 1) * some); ++n)
                work(n, places[static_cast<size_t>(n)]);
        });
    }
};

// One row of logits to its nats, and to the derivative of these where `keep` says so.
template <typename T>
T cost(T* row, int64_t size, int64_t wanted, T smoothing, bool keep) {
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
            told = row[wanted] - top;
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
        row[wanted] -= T(1) - smoothing;
    }
    return std::log(sum) - (T(1) - smoothing) * told - spread;
}

template <typename T>
Status read_out(const abi::CrossEntropyCall<T>& call) {
    static thread_local Workspace workspace;
    if (!lengths_fit(call.lengths, call.rows, call.steps)) return Status::length_out_of_range;
    const Readout<T> readout(call);
    const int64_t threads = call.threads;
    const T smoothing = static_cast<T>(call.label_smoothing);
    if (!readout.ids_fit()) return Status::id_out_of_range;
    if (!readout.sum) std::fill_n(readout.losses, readout.rows * readout.steps, T(0));
    const int64_t N = readout.tokens();
    Arena<T> arena;
    T* read = nullptr;
    Large<T> work{N, readout.classes, readout.inputs,   nullptr,         readout.inputs, 1, readout.weight,
                  1, readout.inputs,  readout.d_logits, readout.classes, readout.bias};
    arena.ask(read, N * readout.inputs);
    arena.ask(work.packed, work.panels() * kPanel<T> * work.depth);
    arena.settle(workspace);
    Jobs jobs;
    for (int64_t p = 0; p < work.panels(); ++p) jobs.add(work.depth * kPanel<T>, [&work, p] { pack_panel(work, p); });
    jobs.run(threads);
    readout.each_place(threads, [&](int64_t n, int64_t place) {
        readout.drop(place, T(1), readout.x + place * readout.inputs, read + n * readout.inputs);
    });
    std::vector<double> sums(static_cast<size_t>(work.blocks()), 0.0);
    for (int64_t block = 0; block < work.blocks(); ++block)
        jobs.add(kBlockRows * readout.inputs * readout.classes, [&, block] {
            static thread_local Workspace beside;
            const int64_t first = block * kBlockRows, some = std::min(kBlockRows, N - first);
            Large<T> part = work;
            part.rows = some;
            part.a = read + first * readout.inputs;
            part.c = readout.d_logits ? readout.d_logits + first * readout.classes
                                      : beside.numbers<T>(some * readout.classes);
            multiply_block<T>({&part}, 0);
            for (int64_t n = 0; n < some; ++n) {
                const int64_t place = readout.places[static_cast<size_t>(first + n)];
                const T nats = cost(part.c + n * readout.classes, readout.classes, readout.targets[place], smoothing,
                                    readout.d_logits != nullptr);
                if (readout.sum)
                    sums[static_cast<size_t>(block)] += static_cast<double>(nats);
                else
                    readout.losses[place] = nats;
            }
            beside.keep_at_most(size_t(1) << 26);
        });
    jobs.run(threads);
    if (readout.sum) *readout.losses = static_cast<T>(std::accumulate(sums.begin(), sums.end(), 0.0));
    workspace.keep_at_most(size_t(1) << 26);
    return Status::ok;
}

template <typename T>
Status read_back(const abi::CrossEntropyCall<T>& call) {
    static thread_local Workspace workspace;
    if (!lengths_fit(call.lengths, call.rows, call.steps)) return Status::length_out_of_range;
    const Readout<T> readout(call);
    T *const d_x = call.d_x, *const d_weight = call.d_weight, *const d_bias = call.d_bias;
    const int64_t threads = call.threads;
    const int64_t N = readout.tokens(), I = readout.inputs, V = readout.classes;
    T *read = nullptr, *factors = nullptr;
    Arena<T> arena;
    arena.ask(read, d_weight ? N * I : 0);
    arena.ask(factors, N);
    Products<T> products;
    const int to_weight = d_weight ? products.add({V, I, N, readout.d_logits, 1, V, nullptr, I, 1, d_weight, I}) : -1;
    const int to_bias = d_bias ? products.add({V, 1, N, readout.d_logits, 1, V, nullptr, 1, 1, d_bias, 1}) : -1;
    if (d_x) {
        const int to_x = products.add({N, I, V, readout.d_logits, V, 1, readout.weight, I, 1, d_x, I});
        products[to_x].c_index = readout.places.data();
    }
    products.ask(arena);
    arena.settle(workspace);
    if (d_weight) products[to_weight].b = read;
    if (d_bias) products[to_bias].b = factors;
    readout.each_place(threads, [&](int64_t n, int64_t place) {
        factors[n] = call.d_losses[place * call.d_losses_stride];
        if (d_weight) readout.drop(place, factors[n], readout.x + place * I, read + n * I);
    });
    if (d_x) readout.clear_others(d_x);
    Jobs jobs;
    products.pack(jobs, false);
    jobs.run(threads);
    products.multiply(jobs);
    jobs.run(threads);
    if (d_x)
        readout.each_place(threads, [&](int64_t n, int64_t place) {
            readout.drop(place, factors[n], d_x + place * I, d_x + place * I);
        });
    workspace.keep_at_most(size_t(1) << 26);
    return Status::ok;
}

}  // namespace weft
