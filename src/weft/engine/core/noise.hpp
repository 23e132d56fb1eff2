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

// Block `block` of the numbers; those that stay are scaled, so that their mean stays too. `from` may be `to`.
template <typename T>
void drop_block(const Noise& noise, int64_t block, int64_t numbers, const T* from, T* to) {
    const uint64_t key = mix(noise.seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(block + 1));
    const uint32_t first = static_cast<uint32_t>(key), second = static_cast<uint32_t>(key >> 32);
    const T scale = static_cast<T>(4294967296.0 / noise.keep);
    const int64_t start = block * kNoiseBlock, count = std::min(kNoiseBlock, numbers - start);
    from += start;
    to += start;
    for (int64_t i = 0; i < count; ++i) {
        uint32_t h = (static_cast<uint32_t>(i) ^ first) * 0x21F0AAADu;
        h = (h ^ (h >> 15) ^ second) * 0x735A2D97u;
        h = (h ^ (h >> 15)) * 0x9E3779B1u;
        h ^= h >> 16;
        to[i] = h < noise.keep ? from[i] * scale : T(0);
    }
}

template <typename T>
void drop(const Noise& noise, int64_t numbers, const T* from, T* to, int64_t threads) {
    const int64_t blocks = (numbers + kNoiseBlock - 1) / kNoiseBlock;
    parallel(blocks, blocks < 4 ? 1 : threads, [&](int64_t block) { drop_block(noise, block, numbers, from, to); });
}

}  // namespace weft
