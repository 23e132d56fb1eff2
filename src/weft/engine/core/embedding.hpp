// Embeddings: rows of tables by id, side by side. The gradient of a table's row is the sum over the positions that read
// it.
#pragma once

#include <algorithm>
#include <vector>

#include "dropout.hpp"

namespace weft {

constexpr int64_t kSmall = 16384;  // elements: less work stays on one thread
constexpr int64_t kFew = 32;       // positions: fewer are not searched for repeated ids

template <typename T>
struct Table : abi::Table<T> {
    explicit Table(const abi::Table<T>& given) : abi::Table<T>(given) {}

    // Which row of the table a position of the batch reads.
    int64_t row(int64_t position, int64_t steps) const {
        if (!this->ids) return position / steps;
        const int64_t id = this->ids[position];
        if (!this->zero_probability) return id;
        const uint64_t key =
            static_cast<uint64_t>(this->seed) + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(position + 1);
        const uint64_t drawn = mix(key) >> 32;
        return static_cast<T>(static_cast<double>(drawn) / 4294967296.0) < this->zero_probability[id] ? 0 : id;
    }
};

// One lookup: which positions of (rows, steps) read which tables.
template <typename T>
struct Embedding {
    int64_t count = 0, steps = 1;          // of positions
    const int64_t* positions = nullptr;    // nullptr: the first `count`
    T* values = nullptr;                   // (rows, steps, width), or their gradient
    int64_t width = 0, dropout_width = 0;  // features a position; dropout is on the first dropout_width
    Dropout dropout{0, 0};                 // keep 0: none
    bool shared_over_time = false;         // the same mask at all steps of a row
    std::vector<Table<T>> tables;

    // Reads an EmbeddingInput and its Tables; nothing, if there are no tables.
    void read(abi::Reader& reader, int64_t tables_count) {
        if (!tables_count) return;
        const auto& input = reader.take<abi::EmbeddingInput<T>>();
        dropout_width = input.dropout_width;
        dropout = read_dropout(input.keep, input.seed);
        shared_over_time = input.shared_over_time != 0;
        for (int64_t i = 0; i < tables_count; ++i) {
            tables.emplace_back(reader.take<abi::Table<T>>());
            width += tables.back().width;
        }
    }

    // With one table and no dropout, a row that several positions read needs to be written only once. Then `values` has
    // the distinct rows one after the other, and `which` (zeros on entry) says which of them each position reads.
    // Returns their number, or 0 where this is impossible or saves little.
    int64_t deduplicate(std::vector<int64_t>& which) {
        if (tables.size() != 1 || !tables[0].ids || tables[0].zero_probability || dropout.keep || count < kFew ||
            !ids_in_range())
            return 0;
        static thread_local std::vector<int64_t>
            number;  // index of each row of the table among the distinct ones; -1 between calls
        const int64_t* ids = tables[0].ids;
        distinct_.reserve(
            static_cast<size_t>(std::min(count, tables[0].rows)));  // an exception below would leave `number` dirty
        if (static_cast<int64_t>(number.size()) < tables[0].rows)
            number.resize(static_cast<size_t>(tables[0].rows), -1);
        for (int64_t n = 0; n < count; ++n) {
            int64_t& known = number[static_cast<size_t>(ids[position(n)])];
            if (known < 0) {
                known = static_cast<int64_t>(distinct_.size());
                distinct_.push_back(ids[position(n)]);
            }
            which[static_cast<size_t>(position(n))] = known;
        }
        for (int64_t id : distinct_) number[static_cast<size_t>(id)] = -1;
        const auto found = static_cast<int64_t>(distinct_.size());
        if (4 * found > 3 * count) return 0;
        tables[0].ids = distinct_.data();
        count = found;
        positions = nullptr;
        return found;
    }

    int64_t position(int64_t n) const { return positions ? positions[n] : n; }
    bool is_wanted() const {
        return std::any_of(tables.begin(), tables.end(), [](const Table<T>& table) { return table.values != nullptr; });
    }
    bool ids_in_range() const {
        bool fit = true;
        for (const Table<T>& table : tables)
            for (int64_t n = 0; table.ids && n < count; ++n) {
                const int64_t id = table.ids[position(n)];
                fit &= id >= 0 && id < table.rows;
            }
        return fit;
    }
    void drop(int64_t position, const T* from, T* to) const {
        drop_position(dropout, shared_over_time, steps, position, dropout_width, T(1), from, to);
    }

    template <typename Work>
    void each_position(int64_t threads, const Work& work) const {
        const int64_t some = std::max<int64_t>(1, kSmall / std::max<int64_t>(1, width));
        parallel((count + some - 1) / some, threads, [&](int64_t part) {
            for (int64_t n = part * some; n < std::min(count, (part + 1) * some); ++n) work(n, position(n));
        });
    }

  private:
    std::vector<int64_t> distinct_;  // ids
};

template <typename T>
Status read_rows(const Embedding<T>& all, int64_t threads) {
    if (!all.ids_in_range()) return Status::id_out_of_range;
    all.each_position(threads, [&](int64_t, int64_t position) {
        T *const row = all.values + position * all.width, *to = row;
        for (const Table<T>& table : all.tables)
            to = std::copy_n(table.values + table.row(position, all.steps) * table.width, table.width, to);
        if (all.dropout.keep) all.drop(position, row, row);
    });
    return Status::ok;
}

// Adds the gradients of the tables. Threads divide the columns by whole cache lines; each adds all positions in order.
template <typename T>
void add_rows(const Embedding<T>& all, int64_t threads) {
    static thread_local Workspace workspace;
    const T* dropped = nullptr;  // the columns with dropout, position after position
    if (all.dropout.keep) {
        T* to = workspace.elements<T>(all.count * all.dropout_width);
        dropped = to;
        all.each_position(threads, [&](int64_t n, int64_t position) {
            all.drop(position, all.values + position * all.width, to + n * all.dropout_width);
        });
    }
    int64_t column = 0;
    for (const Table<T>& table : all.tables) {
        const int64_t begin = column;
        column += table.width;
        if (!table.values) continue;
        const int64_t values = table.rows * table.width, some = 4 * kSmall;
        if (!table.accumulate)
            parallel((values + some - 1) / some, threads, [&](int64_t part) {
                std::fill(table.values + part * some, table.values + std::min(values, (part + 1) * some), T(0));
            });
        constexpr int64_t line = 64 / sizeof(T);
        const int64_t lines = (table.width + line - 1) / line;
        const int64_t parts = all.count * table.width < 4 * kSmall ? 1 : std::max<int64_t>(1, std::min(threads, lines));
        parallel(parts, threads, [&](int64_t part) {
            const int64_t first = lines * part / parts * line,
                          last = std::min(table.width, lines * (part + 1) / parts * line);
            for (int64_t n = 0; n < all.count; ++n) {
                const int64_t position = all.position(n);
                const T* from = (dropped && begin < all.dropout_width ? dropped + n * all.dropout_width
                                                                      : all.values + position * all.width) +
                                begin;
                T* row = table.values + table.row(position, all.steps) * table.width;
                for (int64_t j = first; j < last; ++j) row[j] += from[j];
            }
        });
    }
    workspace.trim();
}

}  // namespace weft
