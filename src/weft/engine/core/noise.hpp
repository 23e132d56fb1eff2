// Dropout without a mask in memory: whether a number is dropped is told by a hash of its place and a seed, so that the
// way back drops the same ones.
#pragma once

#include "abi.hpp"
#include "threads.hpp"

namespace weft {

struct Noise {
    uint64_t seed;
    uint32_t keep;  // of 2^32 numbers, how many stay
};

inline Noise read_noise(int64_t keep, int64_t seed) {
    return {static_cast<uint64_t>(seed), static_cast<uint32_t>(keep)};
}

constexpr int64_t kNoiseBlock = int64_t(1) << 14;  // numbers that share a key

inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// What becomes of each of a block's numbers: 0, or as much as keeps their mean.
class Fates {
  public:
    Fates(const Noise& noise, int64_t block) : keep_(noise.keep), scale_(4294967296.0 / noise.keep) {
        const uint64_t key = mix(noise.seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(block + 1));
        first_ = static_cast<uint32_t>(key);
        second_ = static_cast<uint32_t>(key >> 32);
    }
    // The numbers of the block from `first` on, times a factor. `from` may be `to`.
    template <typename T>
    void apply(int64_t first, int64_t count, T factor, const T* from, T* to) const {
        const T scale = static_cast<T>(scale_) * factor;
        const uint32_t keep = keep_, one = first_, other = second_, begin = static_cast<uint32_t>(first);
        const int end = static_cast<int>(count);  // a block is small: 32 bits count its numbers, and many at a time
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
        for (int i = 0; i < end; ++i) {
            uint32_t h = ((begin + static_cast<uint32_t>(i)) ^ one) * 0x21F0AAADu;
            h = (h ^ (h >> 15) ^ other) * 0x735A2D97u;
            h = (h ^ (h >> 15)) * 0x9E3779B1u;
            const T value = from[i] * scale;
            to[i] = (h ^ (h >> 16)) < keep ? value : T(0);
        }
    }

  private:
    uint32_t keep_, first_, second_;
    double scale_;
};

// What noise and a factor make of the `width` numbers at a place of (rows, steps, width); with `units`, the same at all
// steps of a row. `from` may be `to`.
template <typename T>
void drop_place(const Noise& noise, bool units, int64_t steps, int64_t place, int64_t width, T factor, const T* from,
                T* to) {
    if (!noise.keep) {
        for (int64_t j = 0; j < width; ++j) to[j] = from[j] * factor;
    } else if (units) {
        Fates(noise, place / steps).apply(0, width, factor, from, to);
    } else {
        const int64_t first = place * width;
        for (int64_t j = 0; j < width;) {  // a place may lie in two blocks of noise
            const int64_t block = (first + j) / kNoiseBlock, end = std::min(width, (block + 1) * kNoiseBlock - first);
            Fates(noise, block).apply(first + j - block * kNoiseBlock, end - j, factor, from + j, to + j);
            j = end;
        }
    }
}

// Each number for itself. `from` may be `to`.
template <typename T>
void drop(const Noise& noise, int64_t numbers, const T* from, T* to, int64_t threads) {
    const int64_t blocks = (numbers + kNoiseBlock - 1) / kNoiseBlock;
    parallel(blocks, blocks < 4 ? 1 : threads, [&](int64_t block) {
        const int64_t start = block * kNoiseBlock, count = std::min(kNoiseBlock, numbers - start);
        Fates(noise, block).apply(0, count, T(1), from + start, to + start);
    });
}

// Units of a row at all of its steps: from and to are (rows, steps, width).
template <typename T>
void drop_units(const Noise& noise, int64_t rows, int64_t steps, int64_t width, const T* from, T* to, int64_t threads) {
    parallel(rows, rows * steps * width < 4 * kNoiseBlock ? 1 : threads, [&](int64_t row) {
        static thread_local Workspace workspace;
        T* factors = workspace.numbers<T>(width);
        std::fill_n(factors, width, T(1));
        Fates(noise, row).apply(0, width, T(1), factors, factors);
        for (int64_t i = row * steps * width; i < (row + 1) * steps * width; i += width)
            for (int64_t j = 0; j < width; ++j) to[i + j] = from[i + j] * factors[j];
    });
}

}  // namespace weft
