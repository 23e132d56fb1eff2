// Rows of tables by number, side by side, and the gradients of the tables: sums over the places where a row was read.
#pragma once

#include <algorithm>
#include <vector>

#include "noise.hpp"

namespace weft {

constexpr int64_t kLittle = 16384;  // numbers that are not worth waking anybody for
constexpr int64_t kFew = 32;        // places that are not worth looking through for what repeats

template <typename T>
struct Table : abi::Table<T> {
    explicit Table(const abi::Table<T>& given) : abi::Table<T>(given) {}

    // Which row of the table a position of the batch reads.
    int64_t row(int64_t place, int64_t steps) const {
        if (!this->ids) return place / steps;
        const int64_t id = this->ids[place];
        if (!this->zero_probability) return id;
        const uint64_t key = static_cast<uint64_t>(this->seed) + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(place + 1);
        const uint64_t drawn = mix(key) >> 32;
        return static_cast<T>(static_cast<double>(drawn) / 4294967296.0) < this->zero_probability[id] ? 0 : id;
    }
};

// What is read at the places of (rows, steps), or at some of them.
template <typename T>
struct Embedding {
    int64_t count = 0, steps = 1;     // of places
    const int64_t* places = nullptr;  // nullptr: the first `count`
    T* numbers = nullptr;             // (rows, steps, width), or their gradient
    int64_t width = 0, noisy = 0;     // numbers a place, of which the first ones are dropped now and then
    Noise noise{0, 0};                // keep 0: none
    bool units = false;               // the same at all steps of a row
    std::vector<Table<T>> tables;

    // An EmbeddingInput and `count` Tables; nothing, if there are none.
    void read(abi::Reader& reader, int64_t tables_count) {
        if (!tables_count) return;
        const auto& input = reader.take<abi::EmbeddingInput<T>>();
        noisy = input.dropout_width;
        noise = read_noise(input.keep, input.seed);
        units = input.shared_over_time != 0;
        for (int64_t i = 0; i < tables_count; ++i) {
            tables.emplace_back(reader.take<abi::Table<T>>());
            width += tables.back().width;
        }
    }

    // Of one table without noise, a row that is read at several places need be written only once. Then `numbers` has
    // those that are read, one after the other, and `which` says for each place which of them; `which` comes with a
    // zero for every place. Gives how many they are, or 0 where this cannot be, or gains nothing.
    int64_t without_repeats(std::vector<int64_t>& which) {
        if (tables.size() != 1 || !tables[0].ids || tables[0].zero_probability || noise.keep || count < kFew ||
            !ids_fit())
            return 0;
        static thread_local std::vector<int64_t> number;  // of each row of the table, -1 between calls
        const int64_t* ids = tables[0].ids;
        distinct_.reserve(
            static_cast<size_t>(std::min(count, tables[0].rows)));  // else running out of memory spoils `number`
        if (static_cast<int64_t>(number.size()) < tables[0].rows)
            number.resize(static_cast<size_t>(tables[0].rows), -1);
        for (int64_t n = 0; n < count; ++n) {
            int64_t& known = number[static_cast<size_t>(ids[place(n)])];
            if (known < 0) {
                known = static_cast<int64_t>(distinct_.size());
                distinct_.push_back(ids[place(n)]);
            }
            which[static_cast<size_t>(place(n))] = known;
        }
        for (int64_t id : distinct_) number[static_cast<size_t>(id)] = -1;
        const auto found = static_cast<int64_t>(distinct_.size());
        if (4 * found > 3 * count) return 0;
        tables[0].ids = distinct_.data();
        count = found;
        places = nullptr;
        return found;
    }

    int64_t place(int64_t n) const { return places ? places[n] : n; }
    bool is_wanted() const {
        return std::any_of(tables.begin(), tables.end(), [](const Table<T>& table) { return table.values != nullptr; });
    }
    bool ids_fit() const {
        bool fit = true;
        for (const Table<T>& table : tables)
            for (int64_t n = 0; table.ids && n < count; ++n) {
                const int64_t id = table.ids[place(n)];
                fit &= id >= 0 && id < table.rows;
            }
        return fit;
    }
    void drop(int64_t place, const T* from, T* to) const {
        drop_place(noise, units, steps, place, noisy, T(1), from, to);
    }

    template <typename Work>
    void each_place(int64_t threads, const Work& work) const {
        const int64_t some = std::max<int64_t>(1, kLittle / std::max<int64_t>(1, width));
        parallel((count + some - 1) / some, threads, [&](int64_t part) {
            for (int64_t n = part * some; n < std::min(count, (part + 1) * some); ++n) work(n, place(n));
        });
    }

  private:
    std::vector<int64_t> distinct_;  // ids
};

template <typename T>
Status read_rows(const Embedding<T>& all, int64_t threads) {
    if (!all.ids_fit()) return Status::id_out_of_range;
    all.each_place(threads, [&](int64_t, int64_t place) {
        T *const row = all.numbers + place * all.width, *to = row;
        for (const Table<T>& table : all.tables)
            to = std::copy_n(table.values + table.row(place, all.steps) * table.width, table.width, to);
        if (all.noise.keep) all.drop(place, row, row);
    });
    return Status::ok;
}

// Threads share out the columns, by whole cache lines: each adds up all rows of its own, in their order.
template <typename T>
void add_rows(const Embedding<T>& all, int64_t threads) {
    static thread_local Workspace workspace;
    const T* dropped = nullptr;  // the numbers that are dropped now and then, of each place in turn
    if (all.noise.keep) {
        T* to = workspace.numbers<T>(all.count * all.noisy);
        dropped = to;
        all.each_place(threads, [&](int64_t n, int64_t place) {
            all.drop(place, all.numbers + place * all.width, to + n * all.noisy);
        });
    }
    int64_t column = 0;
    for (const Table<T>& table : all.tables) {
        const int64_t begin = column;
        column += table.width;
        if (!table.values) continue;
        const int64_t numbers = table.rows * table.width, some = 4 * kLittle;
        if (!table.accumulate)
            parallel((numbers + some - 1) / some, threads, [&](int64_t part) {
                std::fill(table.values + part * some, table.values + std::min(numbers, (part + 1) * some), T(0));
            });
        constexpr int64_t line = 64 / sizeof(T);
        const int64_t lines = (table.width + line - 1) / line;
        const int64_t parts =
            all.count * table.width < 4 * kLittle ? 1 : std::max<int64_t>(1, std::min(threads, lines));
        parallel(parts, threads, [&](int64_t part) {
            const int64_t first = lines * part / parts * line,
                          last = std::min(table.width, lines * (part + 1) / parts * line);
            for (int64_t n = 0; n < all.count; ++n) {
                const int64_t place = all.place(n);
                const T* from =
                    (dropped && begin < all.noisy ? dropped + n * all.noisy : all.numbers + place * all.width) + begin;
                T* row = table.values + table.row(place, all.steps) * table.width;
                for (int64_t j = first; j < last; ++j) row[j] += from[j];
            }
        });
    }
    workspace.keep_at_most(size_t(1) << 26);
}

}  // namespace weft
