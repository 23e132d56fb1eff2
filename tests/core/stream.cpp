// A stream with two layers and an output layer, used by several threads at once, each step by several threads itself.
//
// Run under ThreadSanitizer by tests/long/sanitize_threads.sh. Exit code 0: all results are those of one thread alone.
#include "../../src/weft/engine/core/stream.hpp"

#include <cstdio>

#include "tanh_cell.hpp"

namespace {

constexpr int64_t kHidden = 160, kVocabulary = 50;  // weights large enough to be shared among threads

// Logits after some steps, which begin with `token` and are taken by up to `threads` threads; then some sampled tokens.
std::vector<float> run(weft::AnyStream& stream, int64_t token, int64_t threads, int steps) {
    std::vector<float> states[4], logits(kVocabulary);
    for (auto& state : states) state.assign(kHidden, 0.0f);
    for (int n = 0; n < steps; ++n) {
        const int64_t id = (token + n) % kVocabulary;
        void* addresses[] = {states[0].data(), states[1].data(), states[2].data(), states[3].data()};
        stream.step({&stream, threads, &id, logits.data()}, addresses);
        states[0].swap(states[2]);
        states[1].swap(states[3]);
    }
    constexpr int64_t kSampled = 20;
    int64_t tokens[kSampled], id = token;
    double uniforms[kSampled];
    for (int64_t n = 0; n < kSampled; ++n) uniforms[n] = static_cast<double>(n) / kSampled;
    void* addresses[] = {states[0].data(), states[1].data()};
    const int64_t begins[] = {0, 1}, seen[] = {token, 0};
    const double bias[] = {-1.0};
    stream.sample({&stream, threads, &id, kSampled, uniforms, 1.0,    5,    0.9,      0.01, 0.95,  1.1,
                   0.1,     0.2,     1,   seen,     bias,     begins, seen, seen + 1, -1,   tokens},
                  addresses);
    for (int64_t chosen : tokens) logits.push_back(static_cast<float>(chosen));
    return logits;
}

}  // namespace

int main() {
    weft::Program first = tanh_cell(kVocabulary, kHidden), second = tanh_cell(kHidden, kHidden);
    std::vector<weft::SharedWeights> layers;
    for (weft::Program* program : {&first, &second}) {
        std::vector<std::vector<float>> parameters;
        std::vector<int64_t> addresses;
        for (const weft::Parameter& parameter : program->parameters) {
            parameters.push_back(small_values(parameter.elements, 10 * layers.size() + parameters.size()));
            addresses.push_back(reinterpret_cast<int64_t>(parameters.back().data()));
        }
        weft::abi::PackWeightsCall<float> call{};
        call.program = program;
        call.inputs = program->parameters[0].row;
        call.by_id = layers.empty();
        weft::abi::Reader reader(addresses.data());
        layers.push_back(std::make_shared<weft::LayerWeights<float>>(call, reader));
    }
    std::vector<int64_t> records;
    for (weft::SharedWeights& weights : layers) records.push_back(reinterpret_cast<int64_t>(&weights));
    const std::vector<float> weight = small_values(kVocabulary * kHidden, 100);
    weft::abi::Reader reader(records.data());
    const weft::abi::StreamCall<float> call{0, 1, 1, 2, kVocabulary, weight.data(), nullptr, 0, nullptr};
    weft::Stream<float> stream(call, reader);

    constexpr int kSteps = 120;
    constexpr int64_t kCallers = 3;
    std::vector<std::vector<float>> alone, found(kCallers);
    for (int64_t i = 0; i < kCallers; ++i) alone.push_back(run(stream, i, 1, kSteps));
    std::vector<std::thread> callers;
    for (int64_t i = 0; i < kCallers; ++i)
        callers.emplace_back([&, i] { found[static_cast<size_t>(i)] = run(stream, i, 3, kSteps); });
    for (std::thread& caller : callers) caller.join();
    if (alone != found) std::fprintf(stderr, "stream: results depend on the threads\n");
    return alone == found ? 0 : 1;
}
