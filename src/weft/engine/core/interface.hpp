// The C interface: what ctypes sees. Every function gives 0, or what went wrong: 1 out of memory, 2 a token id outside
// the vocabulary, 3 a stream without ids or without an output layer cannot sample.
#pragma once

#include "likeliest.hpp"
#include "peak.hpp"
#include "readout.hpp"
#include "run.hpp"
#include "stream.hpp"
#include "update.hpp"

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

// data: whether numbers are doubles, how many threads there are, and what is to be run (read.hpp).
WEFT_EXPORT int weft_forward(const int64_t* data) {
    return weft::guarded([&] {
        return data[0] ? weft::run_forward<double>(data + 2, data[1]) : weft::run_forward<float>(data + 2, data[1]);
    });
}

WEFT_EXPORT int weft_back(const int64_t* data) {
    return weft::guarded([&] {
        return data[0] ? weft::run_back<double>(data + 2, data[1]) : weft::run_back<float>(data + 2, data[1]);
    });
}

// Dropout of rows x steps x width numbers; steps 0: of rows x width, each for itself, else the same at all steps of a row.
// A number stays with the chance keep / 2^32.
namespace weft {
template <typename T>
int dropout(const void* from, void* to, const int64_t* sizes, const Noise& noise, int64_t threads) {
    const T* given = static_cast<const T*>(from);
    T* dropped = static_cast<T*>(to);
    return guarded([&] {
        if (sizes[1])
            drop_units(noise, sizes[0], sizes[1], sizes[2], given, dropped, threads);
        else
            drop(noise, sizes[0] * sizes[2], given, dropped, threads);
        return 0;
    });
}
}  // namespace weft

WEFT_EXPORT int weft_drop(const void* from, void* to, int64_t rows, int64_t steps, int64_t width, int64_t keep, int64_t seed,
                          int64_t threads, int64_t is_double) {
    const int64_t sizes[] = {rows, steps, width};
    const weft::Noise noise{static_cast<uint64_t>(seed), static_cast<uint32_t>(keep)};
    return is_double ? weft::dropout<double>(from, to, sizes, noise, threads) : weft::dropout<float>(from, to, sizes, noise, threads);
}

// data: how many places, steps of a row, the numbers, and the rest as Embedding reads it. Forward, the numbers are rows of
// the tables; back, they are gradients, and so are the tables.
namespace weft {
template <typename T>
int embedding(const int64_t* data, int64_t back, int64_t threads) {
    Embedding<T> embedding;
    embedding.count = *data++, embedding.steps = *data++;
    embedding.numbers = reinterpret_cast<T*>(*data++);
    embedding.read(data);
    if (!back) return read_rows(embedding, threads);
    add_rows(embedding, threads);
    return 0;
}
}  // namespace weft

WEFT_EXPORT int weft_embedding(const int64_t* data, int64_t back, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::embedding<double>(data, back, threads) : weft::embedding<float>(data, back, threads);
    });
}

// data: as Readout has it.
WEFT_EXPORT int weft_read_out(const int64_t* data, double smoothing, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::read_out<double>(data, smoothing, threads) : weft::read_out<float>(data, smoothing, threads);
    });
}

// back: the gradient of the nats and the distance of its numbers; where those of x, weight and bias go.
namespace weft {
template <typename T>
int read_back(const int64_t* data, const int64_t* back, int64_t threads) {
    auto pointer = [&](int i) { return reinterpret_cast<T*>(back[i]); };
    read_back<T>(data, pointer(0), back[1], pointer(2), pointer(3), pointer(4), threads);
    return 0;
}
}  // namespace weft

WEFT_EXPORT int weft_read_back(const int64_t* data, const int64_t* back, int64_t threads, int64_t is_double) {
    return weft::guarded([&] {
        return is_double ? weft::read_back<double>(data, back, threads) : weft::read_back<float>(data, back, threads);
    });
}

// data: as pack_ids and likeliest have it.
WEFT_EXPORT int weft_pack_ids(const int64_t* data, int64_t threads, int64_t is_double) {
    return weft::guarded([&] { return is_double ? weft::pack_ids<double>(data, threads) : weft::pack_ids<float>(data, threads); });
}

WEFT_EXPORT int weft_likeliest(const int64_t* data, int64_t threads, int64_t is_double) {
    return weft::guarded([&] { return is_double ? weft::likeliest<double>(data, threads) : weft::likeliest<float>(data, threads); });
}

// data: for each of `count` tensors its size and, one after the other, what Update says.
WEFT_EXPORT double weft_norm(const int64_t* data, int64_t count, int64_t threads, int64_t is_double) {
    return is_double ? weft::norm<double>(data, count, threads) : weft::norm<float>(data, count, threads);
}

WEFT_EXPORT void weft_update(const int64_t* data, const double* rates, int64_t count, int64_t threads, int64_t is_double) {
    is_double ? weft::update<double>(data, rates, count, threads) : weft::update<float>(data, rates, count, threads);
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
