// The output layer and its cost in one: rows of x times a weight, and the nats of the id wanted after each.
//
// Only places that want an id are read out. Where the way back will come, what stands for a place's logits afterwards is
// the derivative of its nats, so that the largest table of a training step is written once.
#pragma once

#include <cmath>

#include "large.hpp"
#include "noise.hpp"

namespace weft {

constexpr int64_t kIgnored = -100;  // wanted nowhere: torch's number for it

template <typename T>
struct Readout {
    int64_t rows, steps, inputs, size;  // x is (rows, steps, inputs), the weight (size, inputs)
    const T *x, *weight, *bias;         // no bias: nullptr
    const int64_t *wanted, *lengths;    // (rows, steps); (rows) or nullptr
    Noise noise;                        // keep 0: none
    bool units;                         // the noise is the same at all steps of a row
    T smoothing;
    bool in_all;    // only the sum of all nats is wanted
    T* nats;        // (rows, steps), or one number
    T* derivative;  // (tokens, size), or nullptr: no way back
    std::vector<int64_t> places;

    explicit Readout(const int64_t* data, double share) : smoothing(static_cast<T>(share)) {
        auto pointer = [&] { return reinterpret_cast<T*>(*data++); };
        rows = *data++, steps = *data++, inputs = *data++, size = *data++;
        x = pointer(), weight = pointer(), bias = pointer();
        wanted = reinterpret_cast<const int64_t*>(*data++);
        lengths = reinterpret_cast<const int64_t*>(*data++);
        noise.keep = static_cast<uint32_t>(*data++);
        noise.seed = static_cast<uint64_t>(*data++);
        units = *data++ != 0;
        in_all = *data++ != 0;
        nats = pointer(), derivative = pointer();
        for (int64_t b = 0; b < rows; ++b)
            for (int64_t t = b * steps; t < b * steps + (lengths ? lengths[b] : steps); ++t)
                if (wanted[t] != kIgnored) places.push_back(t);
    }
    int64_t tokens() const { return static_cast<int64_t>(places.size()); }
    bool ids_fit() const {
        return std::all_of(places.begin(), places.end(), [&](int64_t at) { return wanted[at] >= 0 && wanted[at] < size; });
    }

    void drop(int64_t place, T factor, const T* from, T* to) const {
        drop_place(noise, units, steps, place, inputs, factor, from, to);
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
            for (int64_t n = part * some; n < std::min(tokens(), (part + 1) * some); ++n) work(n, places[static_cast<size_t>(n)]);
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

    const T spread = smoothing != T(0) ? smoothing * (total / static_cast<T>(size) - top) : T(0), told = row[wanted] - top;
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
int read_out(const int64_t* data, double smoothing, int64_t threads) {
    static thread_local Workspace workspace;
    const Readout<T> readout(data, smoothing);
    if (!readout.ids_fit()) return 2;
    if (!readout.in_all) std::fill_n(readout.nats, readout.rows * readout.steps, T(0));
    const int64_t N = readout.tokens();
    Arena<T> arena;
    T* read = nullptr;
    Large<T> work{N, readout.size, readout.inputs, nullptr, readout.inputs, 1, readout.weight, 1, readout.inputs, readout.derivative, readout.size, readout.bias};
    arena.ask(read, N * readout.inputs);
    arena.ask(work.packed, work.panels() * kPanel<T> * work.depth);
    arena.settle(workspace);
    Jobs jobs;
    for (int64_t p = 0; p < work.panels(); ++p) jobs.add(work.depth * kPanel<T>, [&work, p] { pack_panel(work, p); });
    jobs.run(threads);
    readout.each_place(threads, [&](int64_t n, int64_t place) { readout.drop(place, T(1), readout.x + place * readout.inputs, read + n * readout.inputs); });
    std::vector<double> sums(static_cast<size_t>(work.blocks()), 0.0);
    for (int64_t block = 0; block < work.blocks(); ++block)
        jobs.add(kBlockRows * readout.inputs * readout.size, [&, block] {
            static thread_local Workspace beside;
            const int64_t first = block * kBlockRows, some = std::min(kBlockRows, N - first);
            Large<T> part = work;
            part.rows = some;
            part.a = read + first * readout.inputs;
            part.c = readout.derivative ? readout.derivative + first * readout.size : beside.numbers<T>(some * readout.size);
            multiply_block<T>({&part}, 0);
            for (int64_t n = 0; n < some; ++n) {
                const int64_t place = readout.places[static_cast<size_t>(first + n)];
                const T nats = cost(part.c + n * readout.size, readout.size, readout.wanted[place], readout.smoothing, readout.derivative != nullptr);
                if (readout.in_all)
                    sums[static_cast<size_t>(block)] += static_cast<double>(nats);
                else
                    readout.nats[place] = nats;
            }
            beside.keep_at_most(size_t(1) << 26);
        });
    jobs.run(threads);
    if (readout.in_all) *readout.nats = static_cast<T>(std::accumulate(sums.begin(), sums.end(), 0.0));
    workspace.keep_at_most(size_t(1) << 26);
    return 0;
}

// d_nats is that of place i at i * d_stride. Gradients that are not wanted are nullptr.
template <typename T>
void read_back(const int64_t* data, const T* d_nats, int64_t d_stride, T* d_x, T* d_weight, T* d_bias, int64_t threads) {
    static thread_local Workspace workspace;
    const Readout<T> readout(data, 0);
    const int64_t N = readout.tokens(), I = readout.inputs, V = readout.size;
    T *read = nullptr, *factors = nullptr;
    Arena<T> arena;
    arena.ask(read, d_weight ? N * I : 0);
    arena.ask(factors, N);
    Products<T> products;
    const int to_weight = d_weight ? products.add({V, I, N, readout.derivative, 1, V, nullptr, I, 1, d_weight, I}) : -1;
    const int to_bias = d_bias ? products.add({V, 1, N, readout.derivative, 1, V, nullptr, 1, 1, d_bias, 1}) : -1;
    if (d_x) {
        const int to_x = products.add({N, I, V, readout.derivative, V, 1, readout.weight, I, 1, d_x, I});
        products[to_x].c_index = readout.places.data();
    }
    products.ask(arena);
    arena.settle(workspace);
    if (d_weight) products[to_weight].b = read;
    if (d_bias) products[to_bias].b = factors;
    readout.each_place(threads, [&](int64_t n, int64_t place) {
        factors[n] = d_nats[place * d_stride];
        if (d_weight) readout.drop(place, factors[n], readout.x + place * I, read + n * I);
    });
    if (d_x) readout.clear_others(d_x);
    Jobs jobs;
    products.pack(jobs, false);
    jobs.run(threads);
    products.multiply(jobs);
    jobs.run(threads);
    if (d_x) readout.each_place(threads, [&](int64_t n, int64_t place) { readout.drop(place, factors[n], d_x + place * I, d_x + place * I); });
    workspace.keep_at_most(size_t(1) << 26);
}

}  // namespace weft
