// The likeliest ids after each row: an output layer whose logits are looked at while they are near, and never written
// down as a whole.
//
// The weight is packed beforehand, for many calls: panels as large.hpp has them, then the bias, where columns that only
// fill up the last panel have minus infinity, so that nobody ever finds them likely.
#pragma once

#include <cmath>
#include <limits>

#include "large.hpp"

namespace weft {

constexpr int64_t kSomePanels = 32;  // whose logits, of a block of rows, stay in the second-level cache
constexpr int64_t kManyBlocks = 8;   // of rows; with fewer, columns are dealt to the threads too

template <typename T>
constexpr T kNever = -std::numeric_limits<T>::infinity();

template <typename T>
Status pack_ids(const abi::PackCall<T>& call) {
    const int64_t size = call.classes, inputs = call.inputs, panels = (size + kPanel<T> - 1) / kPanel<T>;
    const T *weight = call.weight, *bias = call.bias;
    T* packed = call.packed;
    Jobs jobs;
    for (int64_t p = 0; p < panels; ++p)
        jobs.add(inputs * kPanel<T>, [=] { pack_turned(weight, inputs, size, p, packed); });
    jobs.run(call.threads);
    T* start = packed + panels * kPanel<T> * inputs;
    for (int64_t i = 0; i < panels * kPanel<T>; ++i) start[i] = i >= size ? kNever<T> : bias ? bias[i] : T(0);
    return Status::ok;
}

// What is known of a row: the likeliest ids so far, best first, and of all logits the sum of exp(logit - most).
template <typename T>
struct Seen {
    T *values, *sums;  // sums: most, sum
    int64_t *ids, many;

    void begin() const {
        std::fill_n(values, many, kNever<T>);
        std::fill_n(ids, many, int64_t(0));
        sums[0] = kNever<T>, sums[1] = T(0);
    }
    void take(T value, int64_t id) const {
        int64_t place = many - 1;
        if (!(value > values[place])) return;
        for (; place > 0 && value > values[place - 1]; --place)
            values[place] = values[place - 1], ids[place] = ids[place - 1];
        values[place] = value, ids[place] = id;
    }
    void add(T most, T sum) const {     // sum is that of exp(logit - most)
        if (most == kNever<T>) return;  // of nothing that has any chance
        if (most > sums[0]) {
            sums[1] = sums[1] * std::exp(sums[0] - most) + sum;
            sums[0] = most;
        } else {
            sums[1] += sum * std::exp(most - sums[0]);
        }
    }
    void take(const Seen& other) const {
        add(other.sums[0], other.sums[1]);
        for (int64_t i = 0; i < many; ++i) take(other.values[i], other.ids[i]);
    }
    void look(const T* logits, int64_t count, int64_t first) const {  // whole panels
        constexpr int64_t W = kWidth<T>;
        Vec<T> tops = load(logits), sum{};
        for (int64_t j = W; j < count; j += W) tops = larger<T>(load(logits + j), tops);
        const T most = largest<T>(tops), known = values[many - 1],
                least = known == kNever<T> ? worth_taking(tops) : known;
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
    // So many lanes have one that is as large, of which any smaller one cannot be among the likeliest.
    T worth_taking(Vec<T> tops) const {
        if (many > kWidth<T> || any(tops != tops)) return kNever<T>;
        T ordered[kWidth<T>];
        store(ordered, tops);
        std::nth_element(ordered, ordered + many - 1, ordered + kWidth<T>, std::greater<T>());
        return ordered[many - 1];
    }
};

template <typename T>
Status likeliest(const abi::TopKCall<T>& call) {
    static thread_local Workspace workspace, id_workspace;
    const int64_t rows = call.rows, inputs = call.inputs, size = call.classes, many = call.k, threads = call.threads;
    const T* x = call.x;
    T *packed = call.packed, *values = call.values;
    int64_t* ids = call.ids;
    Large<T> work{rows, size, inputs, x, inputs, 1, nullptr, 1, inputs, nullptr, kSomePanels * kPanel<T>};
    const int64_t panels = work.panels(), chunks = (panels + kSomePanels - 1) / kSomePanels;
    const int64_t parts = work.blocks() < kManyBlocks ? chunks : 1;
    T *found = nullptr, *sums = nullptr;
    Arena<T> arena;
    arena.ask(found, parts * rows * many);
    arena.ask(sums, parts * rows * 2);
    arena.settle(workspace);
    int64_t* found_ids = id_workspace.numbers<int64_t>(parts * rows * many);
    auto seen = [=](int64_t part, int64_t row) {
        const int64_t at = part * rows + row;
        return Seen<T>{found + at * many, sums + at * 2, found_ids + at * many, many};
    };
    Jobs jobs;
    for (int64_t block = 0; block < work.blocks(); ++block)
        for (int64_t part = 0; part < parts; ++part)
            jobs.add(kBlockRows * inputs * size / parts, [&, block, part] {
                static thread_local Workspace beside;
                const int64_t first = block * kBlockRows, some = std::min(kBlockRows, rows - first);
                for (int64_t r = 0; r < some; ++r) seen(part, first + r).begin();
                Large<T> piece = work;
                piece.rows = some;
                piece.a = x + first * inputs;
                piece.c = beside.numbers<T>(some * piece.c_row);
                for (int64_t p = part * kSomePanels; p < panels; p += parts * kSomePanels) {
                    piece.columns = std::min(kSomePanels, panels - p) * kPanel<T>;
                    piece.packed = packed + p * kPanel<T> * inputs;
                    piece.start = packed + (panels * inputs + p) * kPanel<T>;
                    multiply_block<T>({&piece}, 0);
                    for (int64_t r = 0; r < some; ++r)
                        seen(part, first + r).look(piece.c + r * piece.c_row, piece.columns, p * kPanel<T>);
                }
            });
    jobs.run(threads);
    for (int64_t block = 0; block < work.blocks(); ++block)
        jobs.add(kBlockRows * parts * many, [&, block] {
            for (int64_t row = block * kBlockRows; row < std::min(rows, (block + 1) * kBlockRows); ++row) {
                const Seen<T> best = seen(0, row);
                for (int64_t part = 1; part < parts; ++part) best.take(seen(part, row));
                const T all = std::log(best.sums[1]);
                for (int64_t i = 0; i < many; ++i) values[row * many + i] = best.values[i] - best.sums[0] - all;
                std::copy_n(best.ids, many, ids + row * many);
            }
        });
    jobs.run(threads);
    return Status::ok;
}

}  // namespace weft
