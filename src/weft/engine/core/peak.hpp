// The peak arithmetic rate of the machine: multiply-adds on registers, on all threads at once. Benchmarks relate to it.
#pragma once

#include <chrono>

#include "abi.hpp"
#include "threads.hpp"
#include "vector.hpp"

namespace weft {

template <typename T>
Status peak(const abi::PeakCall<T>& call) {
    const int64_t threads = call.threads;
    constexpr int chains = 10;  // enough to hide the latency of one, few enough for 16 registers
    constexpr int64_t rounds = 2000000;
    volatile T given = T(0.999);  // volatile, so that the compiler cannot compute the result
    const auto start = std::chrono::steady_clock::now();
    parallel(threads, threads, [&](int64_t) {
        const Vec<T> factor = all(T(given)), term = all(T(given));
        Vec<T> sums[chains];
        for (int c = 0; c < chains; ++c) sums[c] = all(T(given) + T(c));
        for (int64_t round = 0; round < rounds; ++round)
            for (int c = 0; c < chains; ++c) sums[c] = sums[c] * factor + term;
        T total = 0;
        for (int c = 0; c < chains; ++c) total += sums[c][0];
        volatile T kept = total;
        (void)kept;
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    *call.flops = 2.0 * static_cast<double>(threads * rounds * chains * kWidth<T>) / seconds.count();
    return Status::ok;
}

}  // namespace weft
