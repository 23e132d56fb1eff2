// A layer over few rows, whose threads divide the columns of the products, called by several threads at once.
//
// Run under ThreadSanitizer by tests/long/sanitize_threads.sh. Exit code 0: all results are those of one thread alone.
#include <cstdio>

#include "../../src/weft/engine/core/run.hpp"
#include "tanh_cell.hpp"

namespace {

constexpr int64_t kHidden = 400, kInputs = 24, kSteps = 30, kRows = 2;  // weights large enough for several threads

struct Layer {
    weft::Program program = tanh_cell(kInputs, kHidden);
    std::vector<std::vector<float>> parameters;
    std::vector<float> x = small_values(kRows * kSteps * kInputs, 9);
};

// Outputs and final state, by up to `threads` threads.
std::vector<float> run(Layer& layer, int64_t threads) {
    std::vector<float> outputs(kRows * kSteps * kHidden), last(kRows * kHidden);
    weft::abi::RunCall<float> call{};
    call.threads = threads;
    call.rows = kRows;
    call.steps = kSteps;
    call.x = layer.x.data();
    call.outputs = outputs.data();
    call.layers = 1;
    std::vector<int64_t> records = {1, 0, 0, reinterpret_cast<int64_t>(&layer.program), kInputs, 0, 0, 0, 0};
    for (std::vector<float>& values : layer.parameters) records.push_back(reinterpret_cast<int64_t>(values.data()));
    records.push_back(0);  // no state before
    records.push_back(reinterpret_cast<int64_t>(last.data()));
    weft::abi::Reader reader(records.data());
    if (weft::run_forward(call, reader) != weft::Status::ok) return {};
    outputs.insert(outputs.end(), last.begin(), last.end());
    return outputs;
}

}  // namespace

int main() {
    Layer layer;
    for (const weft::Parameter& parameter : layer.program.parameters)
        layer.parameters.push_back(small_values(parameter.elements, layer.parameters.size()));
    const std::vector<float> alone = run(layer, 1);
    constexpr int kCallers = 2;
    std::vector<float> found[kCallers];
    std::vector<std::thread> callers;
    for (std::vector<float>& results : found)
        callers.emplace_back([&] {
            for (int n = 0; n < 5; ++n) results = run(layer, 3);
        });
    for (std::thread& caller : callers) caller.join();
    bool right = !alone.empty();
    for (const std::vector<float>& results : found) right = right && results == alone;
    if (!right) std::fprintf(stderr, "layer: results depend on the threads\n");
    return right ? 0 : 1;
}
