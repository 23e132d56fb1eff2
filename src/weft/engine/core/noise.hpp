// Dropout without a mask in memory: whether a number is dropped is told by a hash of its place and a seed, so that the way
// back drops the same ones.
#pragma once

#include "threads.hpp"

namespace weft {

struct Noise {
    uint64_t seed;
    uint32_t keep;  // of 2^32 numbers, how many stay
};

constexpr int64_t kNoiseBlock = int64_t(1) << 14;  // numbers that share a key

inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// What each of a block's numbers is multiplied by: 0, or as much as keeps their mean.
class Fates {
  public:
    Fates(const Noise& noise, int64_t block) : keep_(noise.keep) {
        const uint64_t key = mix(noise.seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(block + 1));
        first_ = static_cast<uint32_t>(key);
        second_ = static_cast<uint32_t>(key >> 32);
    }
    bool stays(int64_t i) const {
        uint32_t h = (static_cast<uint32_t>(i) ^ first_) * 0x21F0AAADu;
        h = (h ^ (h >> 15) ^ second_) * 0x735A2D97u;
        h = (h ^ (h >> 15)) * 0x9E3779B1u;
        return (h ^ (h >> 16)) < keep_;
    }
    template <typename T>
    T scale() const {
        return static_cast<T>(4294967296.0 / keep_);
    }

  private:
    uint32_t keep_, first_, second_;
};

// Each number for itself. `from` may be `to`.
template <typename T>
void drop(const Noise& noise, int64_t numbers, const T* from, T* to, int64_t threads) {
    const int64_t blocks = (numbers + kNoiseBlock - 1) / kNoiseBlock;
    parallel(blocks, blocks < 4 ? 1 : threads, [&](int64_t block) {
        const Fates fates(noise, block);
        const T scale = fates.scale<T>();
        const int64_t start = block * kNoiseBlock, count = std::min(kNoiseBlock, numbers - start);
        constexpr int64_t at_once = 128;  // to a place of their own, since `to` may be `from`: so the compiler takes many
        for (int64_t i = start; i < start + count; i += at_once) {
            const int64_t some = std::min(at_once, start + count - i);
            T dropped[at_once];
            for (int64_t j = 0; j < some; ++j) {
                const T value = from[i + j] * scale;
                dropped[j] = fates.stays(i - start + j) ? value : T(0);
            }
            std::copy(dropped, dropped + some, to + i);
        }
    });
}

// Units of a row at all of its steps: from and to are (rows, steps, width).
template <typename T>
void drop_units(const Noise& noise, int64_t rows, int64_t steps, int64_t width, const T* from, T* to, int64_t threads) {
    parallel(rows, rows * steps * width < 4 * kNoiseBlock ? 1 : threads, [&](int64_t row) {
        static thread_local Workspace workspace;
        T* factors = workspace.numbers<T>(width);
        const Fates fates(noise, row);
        const T scale = fates.scale<T>();
        for (int64_t j = 0; j < width; ++j) factors[j] = fates.stays(j) ? scale : T(0);
        for (int64_t i = row * steps * width; i < (row + 1) * steps * width; i += width)
            for (int64_t j = 0; j < width; ++j) to[i + j] = from[i + j] * factors[j];
    });
}

}  // namespace weft
