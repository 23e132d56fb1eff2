// Rows of tables by number, side by side, and the gradients of the tables: sums over the places where a row was read.
#pragma once

#include "noise.hpp"

namespace weft {

constexpr int64_t kLittle = 16384;  // numbers that are not worth waking anybody for

template <typename T>
struct Table {
    T* numbers;          // (rows, width); on the way back its gradient, or nullptr: not wanted
    int64_t rows, width;
    const int64_t* ids;  // of each place
    bool again;          // its gradient has been begun, and is added to
    const T* chances;    // of each row to be read as row 0 instead, or nullptr: none is
    uint64_t seed;       // what tells where it is

    int64_t row(int64_t place) const {
        const int64_t id = ids[place];
        if (!chances) return id;
        const uint64_t drawn = mix(seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(place + 1)) >> 32;
        return static_cast<T>(static_cast<double>(drawn) / 4294967296.0) < chances[id] ? 0 : id;
    }
};

template <typename T>
struct Embedding {
    int64_t places, steps, width;
    Noise noise;  // keep 0: none
    bool units;   // the same at all steps of a row
    T* numbers;   // (places, width), or their gradient
    std::vector<Table<T>> tables;

    explicit Embedding(const int64_t* data) {
        places = *data++, steps = *data++, width = *data++;
        noise.keep = static_cast<uint32_t>(*data++);
        noise.seed = static_cast<uint64_t>(*data++);
        units = *data++ != 0;
        numbers = reinterpret_cast<T*>(*data++);
        const int64_t count = *data++;
        for (int64_t i = 0; i < count; ++i, data += 7)
            tables.push_back({reinterpret_cast<T*>(data[0]), data[1], data[2], reinterpret_cast<const int64_t*>(data[3]), data[4] != 0,
                              reinterpret_cast<const T*>(data[5]), static_cast<uint64_t>(data[6])});
    }

    bool ids_fit() const {
        bool fit = true;
        for (const Table<T>& table : tables)
            for (int64_t i = 0; i < places; ++i) fit &= table.ids[i] >= 0 && table.ids[i] < table.rows;
        return fit;
    }

    template <typename Work>
    void each_place(int64_t threads, const Work& work) const {
        const int64_t some = std::max<int64_t>(1, kLittle / std::max<int64_t>(1, width));
        parallel((places + some - 1) / some, threads, [&](int64_t part) {
            for (int64_t i = part * some; i < std::min(places, (part + 1) * some); ++i) work(i);
        });
    }
};

template <typename T>
int read_rows(const int64_t* data, int64_t threads) {
    const Embedding<T> all(data);
    if (!all.ids_fit()) return 2;
    all.each_place(threads, [&](int64_t i) {
        T *const row = all.numbers + i * all.width, *to = row;
        for (const Table<T>& table : all.tables) to = std::copy_n(table.numbers + table.row(i) * table.width, table.width, to);
        if (all.noise.keep) drop_place(all.noise, all.units, all.steps, i, all.width, T(1), row, row);
    });
    return 0;
}

// Threads share out the columns, by whole cache lines: each adds up all rows of its own, in their order.
template <typename T>
void add_rows(const int64_t* data, int64_t threads) {
    static thread_local Workspace workspace;
    const Embedding<T> all(data);
    const T* gradient = all.numbers;
    if (all.noise.keep) {
        T* dropped = workspace.numbers<T>(all.places * all.width);
        all.each_place(threads, [&](int64_t i) {
            const int64_t at = i * all.width;
            drop_place(all.noise, all.units, all.steps, i, all.width, T(1), all.numbers + at, dropped + at);
        });
        gradient = dropped;
    }
    for (const Table<T>& table : all.tables) {
        const T* from = gradient;
        gradient += table.width;
        if (!table.numbers) continue;
        const int64_t numbers = table.rows * table.width, some = 4 * kLittle;
        if (!table.again)
            parallel((numbers + some - 1) / some, threads, [&](int64_t part) {
                std::fill(table.numbers + part * some, table.numbers + std::min(numbers, (part + 1) * some), T(0));
            });
        constexpr int64_t line = 64 / sizeof(T);
        const int64_t lines = (table.width + line - 1) / line;
        const int64_t parts = all.places * table.width < 4 * kLittle ? 1 : std::max<int64_t>(1, std::min(threads, lines));
        parallel(parts, threads, [&](int64_t part) {
            const int64_t first = lines * part / parts * line, last = std::min(table.width, lines * (part + 1) / parts * line);
            for (int64_t i = 0; i < all.places; ++i) {
                T* row = table.numbers + table.row(i) * table.width;
                for (int64_t j = first; j < last; ++j) row[j] += from[i * all.width + j];
            }
        });
    }
    workspace.keep_at_most(size_t(1) << 26);
}

}  // namespace weft
