// The C interface: what ctypes sees. A call takes the records of src/weft/abi.py and returns a Status; no exception
// leaves it.
#pragma once

#include "cross_entropy.hpp"
#include "optimizer.hpp"
#include "peak.hpp"
#include "run.hpp"
#include "stream.hpp"
#include "top_k.hpp"

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace weft {

// Runs work() and turns whatever it throws into a status.
template <typename Work>
int guarded(const Work& work) noexcept {
    try {
        return static_cast<int>(work());
    } catch (const std::bad_alloc&) {
        return static_cast<int>(Status::out_of_memory);
    } catch (const std::length_error&) {  // a vector larger than any memory
        return static_cast<int>(Status::out_of_memory);
    } catch (...) {
        return static_cast<int>(Status::failed);
    }
}

// Reads the first record of a call, whose first field says whether the values are doubles, and runs work(record,
// reader) for their type.
template <template <typename> class Call, typename Work>
int guarded_call(const void* data, const Work& work) noexcept {
    return guarded([&] {
        abi::Reader reader(data);
        if (*static_cast<const int64_t*>(data)) return work(reader.take<Call<double>>(), reader);
        return work(reader.take<Call<float>>(), reader);
    });
}

template <typename T>
Status dropout(const abi::DropoutCall<T>& call) {
    const Dropout dropout = read_dropout(call.keep, call.seed);
    if (call.steps)
        drop_shared(dropout, call.rows, call.steps, call.width, call.source, call.target, call.threads);
    else
        drop(dropout, call.rows * call.width, call.source, call.target, call.threads);
    return Status::ok;
}

template <typename T>
Status embed(const abi::EmbeddingCall<T>& call, abi::Reader& reader) {
    Embedding<T> embedding;
    embedding.count = call.positions;
    embedding.steps = call.steps;
    embedding.values = call.values;
    embedding.read(reader, call.tables);
    if (!call.backward) return read_rows(embedding, call.threads);
    add_rows(embedding, call.threads);
    return Status::ok;
}

template <typename T>
AnyStream* make_stream(const abi::StreamCall<T>& call, abi::Reader& reader) {
    return new Stream<T>(call, reader);
}

// The hash of the declarations that this library was compiled from.
WEFT_EXPORT uint64_t weft_layout() { return kLayout; }

// The entry point of the OpenMP runtime that torch uses, or nullptr (threads.hpp).
WEFT_EXPORT void weft_use_parallel_region(void* parallel_region) {
    workers().region = reinterpret_cast<ParallelRegion>(parallel_region);
    workers().owner = getpid();
}

// ProgramHeader and what follows it.
WEFT_EXPORT int weft_new_program(const void* data) {
    return guarded([&] {
        abi::Reader reader(data);
        const auto& header = reader.take<abi::ProgramHeader<void>>();
        *header.program = new Program(read_program(reader, header));
        return Status::ok;
    });
}

WEFT_EXPORT int weft_free_program(void* program) {
    return guarded([&] {
        delete static_cast<Program*>(program);
        return Status::ok;
    });
}

// RunCall and what follows it.
WEFT_EXPORT int weft_forward(const void* data) {
    return guarded_call<abi::RunCall>(data, [](const auto& call, auto& reader) { return run_forward(call, reader); });
}

WEFT_EXPORT int weft_backward(const void* data) {
    return guarded_call<abi::RunCall>(data, [](const auto& call, auto& reader) { return run_backward(call, reader); });
}

// DropoutCall.
WEFT_EXPORT int weft_dropout(const void* data) {
    return guarded_call<abi::DropoutCall>(data, [](const auto& call, auto&) { return dropout(call); });
}

// EmbeddingCall, EmbeddingInput, Tables.
WEFT_EXPORT int weft_embedding(const void* data) {
    return guarded_call<abi::EmbeddingCall>(data, [](const auto& call, auto& reader) { return embed(call, reader); });
}

// CrossEntropyCall.
WEFT_EXPORT int weft_cross_entropy(const void* data) {
    return guarded_call<abi::CrossEntropyCall>(data, [](const auto& call, auto&) { return cross_entropy(call); });
}

WEFT_EXPORT int weft_cross_entropy_backward(const void* data) {
    return guarded_call<abi::CrossEntropyCall>(data,
                                               [](const auto& call, auto&) { return cross_entropy_backward(call); });
}

// PackCall.
WEFT_EXPORT int weft_pack_output_layer(const void* data) {
    return guarded_call<abi::PackCall>(data, [](const auto& call, auto&) { return pack_output_layer(call); });
}

// TopKCall.
WEFT_EXPORT int weft_top_k(const void* data) {
    return guarded_call<abi::TopKCall>(data, [](const auto& call, auto&) { return top_k(call); });
}

// NormCall.
WEFT_EXPORT int weft_gradient_norm(const void* data) {
    return guarded_call<abi::NormCall>(data, [](const auto& call, auto&) { return gradient_norm(call); });
}

// OptimizerCall.
WEFT_EXPORT int weft_optimizer_step(const void* data) {
    return guarded_call<abi::OptimizerCall>(data, [](const auto& call, auto&) { return optimizer_step(call); });
}

// PeakCall.
WEFT_EXPORT int weft_peak(const void* data) {
    return guarded([&] { return peak(*static_cast<const abi::PeakCall<float>*>(data)); });
}

// PackWeightsCall and what follows it.
template <typename T>
Status pack_weights(const abi::PackWeightsCall<T>& call, abi::Reader& reader) {
    auto packed = std::make_unique<const LayerWeights<T>>(call, reader);
    *call.bytes = packed->bytes();
    *call.weights = new SharedWeights(std::move(packed));
    return Status::ok;
}

WEFT_EXPORT int weft_pack_weights(const void* data) {
    return guarded_call<abi::PackWeightsCall>(
        data, [](const auto& call, auto& reader) { return pack_weights(call, reader); });
}

WEFT_EXPORT int weft_free_weights(void* weights) {
    return guarded([&] {
        delete static_cast<SharedWeights*>(weights);
        return Status::ok;
    });
}

// StreamCall and what follows it.
WEFT_EXPORT int weft_new_stream(const void* data) {
    return guarded_call<abi::StreamCall>(data, [](const auto& call, auto& reader) {
        *call.stream = make_stream(call, reader);
        return Status::ok;
    });
}

WEFT_EXPORT int weft_free_stream(void* stream) {
    return guarded([&] {
        delete static_cast<AnyStream*>(stream);
        return Status::ok;
    });
}

// StreamStepCall; the addresses of states before and after.
WEFT_EXPORT int weft_stream_step(const void* data) {
    return guarded([&] {
        const auto* call = static_cast<const abi::StreamStepCall<void>*>(data);
        return static_cast<AnyStream*>(call->stream)->step(*call, reinterpret_cast<void* const*>(call + 1));
    });
}

// SampleCall; the addresses of states.
WEFT_EXPORT int weft_stream_sample(const void* data) {
    return guarded([&] {
        const auto* call = static_cast<const abi::SampleCall<void>*>(data);
        return static_cast<AnyStream*>(call->stream)->sample(*call, reinterpret_cast<void* const*>(call + 1));
    });
}

}  // namespace weft
