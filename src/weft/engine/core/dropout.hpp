// Dropout without a mask in memory: a hash of an element's position and a seed decides whether the element is dropped,
// so the backward pass drops the same elements.
#pragma once

#include "abi.hpp"
#include "threads.hpp"

namespace weft {

struct Dropout {
    uint64_t seed;
    uint32_t keep;  // keep probability times 2^32; 0: no dropout
};

inline Dropout read_dropout(int64_t keep, int64_t seed) {
    return {static_cast<uint64_t>(seed), static_cast<uint32_t>(keep)};
}

constexpr int64_t kMaskBlock = int64_t(1) << 14;  // elements that share a key

inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// The mask of one block of elements: 0, or 1 / keep probability.
class DropoutMask {
  public:
    DropoutMask(const Dropout& dropout, int64_t block) : keep_(dropout.keep), scale_(4294967296.0 / dropout.keep) {
        const uint64_t key = mix(dropout.seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(block + 1));
        first_ = static_cast<uint32_t>(key);
        second_ = static_cast<uint32_t>(key >> 32);
    }
    // to = from * mask * factor for `count` elements of the block from `first` on. `from` may be `to`.
    template <typename T>
    void apply(int64_t first, int64_t count, T factor, const T* from, T* to) const {
        const T scale = static_cast<T>(scale_) * factor;
        const uint32_t keep = keep_, one = first_, other = second_, begin = static_cast<uint32_t>(first);
        const int end = static_cast<int>(count);  // 32 bits are enough, and more of them fit into a vector
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

// Dropout times a factor on the `width` elements at one position of (rows, steps, width). With `shared_over_time`, all
// steps of a row have the same mask. `from` may be `to`.
template <typename T>
void drop_position(const Dropout& dropout, bool shared_over_time, int64_t steps, int64_t position, int64_t width,
                   T factor, const T* from, T* to) {
    if (!dropout.keep) {
        for (int64_t j = 0; j < width; ++j) to[j] = from[j] * factor;
    } else if (shared_over_time) {
        DropoutMask(dropout, position / steps).apply(0, width, factor, from, to);
    } else {
        const int64_t first = position * width;
        for (int64_t j = 0; j < width;) {  // a position may lie in two blocks
            const int64_t block = (first + j) / kMaskBlock, end = std::min(width, (block + 1) * kMaskBlock - first);
            DropoutMask(dropout, block).apply(first + j - block * kMaskBlock, end - j, factor, from + j, to + j);
            j = end;
        }
    }
}

// Dropout on `values` elements, each with its own draw. `from` may be `to`.
template <typename T>
void drop(const Dropout& dropout, int64_t values, const T* from, T* to, int64_t threads) {
    const int64_t blocks = (values + kMaskBlock - 1) / kMaskBlock;
    parallel(blocks, blocks < 4 ? 1 : threads, [&](int64_t block) {
        const int64_t start = block * kMaskBlock, count = std::min(kMaskBlock, values - start);
        DropoutMask(dropout, block).apply(0, count, T(1), from + start, to + start);
    });
}

// Dropout with one mask for all steps of a row: `from` and `to` are (rows, steps, width).
template <typename T>
void drop_shared(const Dropout& dropout, int64_t rows, int64_t steps, int64_t width, const T* from, T* to,
                 int64_t threads) {
    parallel(rows, rows * steps * width < 4 * kMaskBlock ? 1 : threads, [&](int64_t row) {
        static thread_local Workspace workspace;
        T* factors = workspace.elements<T>(width);
        std::fill_n(factors, width, T(1));
        DropoutMask(dropout, row).apply(0, width, T(1), factors, factors);
        for (int64_t i = row * steps * width; i < (row + 1) * steps * width; i += width)
            for (int64_t j = 0; j < width; ++j) to[i + j] = from[i + j] * factors[j];
    });
}

}  // namespace weft
