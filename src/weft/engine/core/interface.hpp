// The C interface: what ctypes sees. Every function gives 0, or what went wrong: 1 out of memory, 2 a token id outside
// the vocabulary.
#pragma once

#include "large.hpp"
#include "loop.hpp"

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace weft {
template <typename Work>
int guarded(const Work& work) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        return 1;
    }
}
}  // namespace weft

WEFT_EXPORT void weft_start(void* parallel_region) {
    weft::workers().region = reinterpret_cast<weft::ParallelRegion>(parallel_region);
    weft::workers().owner = getpid();
}

WEFT_EXPORT void* weft_program(const int64_t* data) { return new weft::Program(weft::read_program(data)); }

WEFT_EXPORT void weft_forget(void* program) { delete static_cast<weft::Program*>(program); }

WEFT_EXPORT int weft_forward(const int64_t* const* calls, int64_t count, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::run_forward<double>(calls, count, threads) : weft::run_forward<float>(calls, count, threads);
    });
}

WEFT_EXPORT int weft_back(const int64_t* const* calls, int64_t count, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::run_back<double>(calls, count, threads) : weft::run_back<float>(calls, count, threads);
    });
}

WEFT_EXPORT int weft_products(const int64_t* works, int64_t count, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::run_large<double>(works, count, threads) : weft::run_large<float>(works, count, threads);
    });
}

WEFT_EXPORT int weft_scatter_add(const int64_t* ids, int64_t count, const void* from, int64_t columns, void* to,
                                 int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::scatter_add(ids, count, static_cast<const double*>(from), columns, static_cast<double*>(to), threads)
                         : weft::scatter_add(ids, count, static_cast<const float*>(from), columns, static_cast<float*>(to), threads);
    });
}
