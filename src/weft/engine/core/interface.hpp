// The C interface: what ctypes sees. Every function gives 0, or what went wrong: 1 out of memory, 2 a token id outside
// the vocabulary, 3 a stream without ids or without an output layer cannot sample.
#pragma once

#include "peak.hpp"
#include "run.hpp"
#include "stream.hpp"

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

// calls: the numbers of all calls, one after the other (call.hpp).
WEFT_EXPORT int weft_forward(const int64_t* calls, int64_t count, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::run_forward<double>(calls, count, threads) : weft::run_forward<float>(calls, count, threads);
    });
}

WEFT_EXPORT int weft_back(const int64_t* calls, int64_t count, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::run_back<double>(calls, count, threads) : weft::run_back<float>(calls, count, threads);
    });
}

WEFT_EXPORT double weft_peak(int64_t threads) { return weft::peak<float>(threads); }

WEFT_EXPORT void* weft_stream(const int64_t* data, int64_t is_double) {
    try {
        if (is_double) return static_cast<weft::AnyStream*>(new weft::Stream<double>(data));
        return static_cast<weft::AnyStream*>(new weft::Stream<float>(data));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

WEFT_EXPORT void weft_stream_forget(void* stream) { delete static_cast<weft::AnyStream*>(stream); }

// call: the stream, and then as AnyStream::step has it.
WEFT_EXPORT int weft_stream_step(const int64_t* call) {
    return weft::guarded([&] { return reinterpret_cast<weft::AnyStream*>(call[0])->step(call + 1); });
}

// choice: temperature, top_k, top_p, how many ids are banned, the id that ends a row.
WEFT_EXPORT int weft_stream_sample(void* stream, int64_t threads, int64_t* ids, void* const* states, const double* uniforms,
                                   int64_t count, const double* choice, const int64_t* banned, int64_t* chosen) {
    return weft::guarded([&] {
        const weft::Choice how{choice[0], static_cast<int64_t>(choice[1]), choice[2],
                               banned,    static_cast<int64_t>(choice[3]), static_cast<int64_t>(choice[4])};
        return static_cast<weft::AnyStream*>(stream)->sample(threads, ids, states, uniforms, count, how, chosen);
    });
}
