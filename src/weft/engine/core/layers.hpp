// The layers of one call of weft_forward or weft_backward, read from its records.
#pragma once

#include "embedding.hpp"
#include "layer_weights.hpp"

namespace weft {

// Directions over the same rows, whose outputs stand side by side, and dropout on what they read.
template <typename T>
struct Layer {
    std::vector<CellRun<T>> calls;
    Dropout dropout;
    int64_t width = 0;
    T *outputs = nullptr, *d_outputs = nullptr;
    Layer(size_t directions, const Dropout& dropout) : calls(directions), dropout(dropout) {}
};

// A call of weft_forward or weft_backward. `memory` begins with the rows that are embedded; layer after layer, it holds
// what its directions keep, to train, and its outputs, but those of the last. `d_memory` holds the gradients of such
// rows, if they are wanted, and of such outputs.
template <typename T>
class Run {
  public:
    Rows rows;
    Embedding<T> embedding;
    std::vector<Layer<T>> layers;

    Run(const abi::RunCall<T>& given, abi::Reader& reader, bool backward)
        : rows(given.rows, given.steps, given.lengths), precision_(precision_of<T>(given.precision)) {
        const int64_t* ids = given.ids;
        T *x = given.x, *d_x = given.d_x, *memory = given.memory, *d_memory = given.d_memory;
        const int64_t positions = rows.count * rows.steps;
        const bool train = given.train != 0;
        int64_t distinct = 0;
        embedding.read(reader, given.tables);
        if (!embedding.tables.empty()) {
            embedding.count = rows.tokens;
            embedding.steps = rows.steps;
            embedding.positions = rows.positions.empty() ? nullptr : rows.positions.data();
            x = memory;
            memory += aligned(positions * embedding.width);
            if (backward && embedding.is_wanted()) {
                d_x = d_memory;
                d_memory += aligned(positions * embedding.width);
            }
            embedding.values = backward ? d_x : x;
            if (!backward && !train) {
                row_of_.assign(static_cast<size_t>(positions), 0);
                distinct = embedding.deduplicate(row_of_);
            }
            if (distinct) ids = row_of_.data();
        }
        for (int64_t n = 0; n < given.layers; ++n) {
            const auto& described = reader.take<abi::Layer<T>>();
            layers.emplace_back(static_cast<size_t>(described.directions),
                                read_dropout(described.keep, described.seed));
            Layer<T>& layer = layers.back();
            for (CellRun<T>& call : layer.calls) {
                const auto& direction = reader.take<abi::Direction<T>>();
                begin(call, direction);
                if (direction.weights && !train)
                    call.kept_weights = static_cast<const LayerWeights<T>*>(
                        static_cast<const SharedWeights*>(direction.weights)->get());
                call.ids = ids;
                call.distinct = distinct;
                call.x = x;
                call.d_x = d_x;
                call.train = train;
                call.half_kept = given.half_kept != 0;
                if (train) memory = keep(call, memory);
                layer.width += call.program->hidden;
            }
            if (n + 1 < given.layers) {
                place(layer, memory, d_memory, layer.width);
                memory += positions * layer.width;
                if (backward) d_memory += positions * layer.width;
            } else if (backward && !given.d_outputs_stride) {
                same_.assign(static_cast<size_t>(layer.width), given.d_outputs ? *given.d_outputs : T(0));
                place(layer, given.outputs, same_.data(), 0);
            } else {
                place(layer, given.outputs, given.d_outputs, given.d_outputs_stride);
            }
            ids = nullptr;
            distinct = 0;
            x = layer.outputs;
            d_x = layer.d_outputs;
        }
        each([&](CellRun<T>& call) {
            take(reader, call.program->parameters.size(), call.parameters);
            take(reader, static_cast<size_t>(call.program->states), call.first);
        });
        each([&](CellRun<T>& call) { take(reader, static_cast<size_t>(call.program->states), call.last); });
        if (backward)
            each([&](CellRun<T>& call) {
                take(reader, call.program->parameters.size(), call.gradients);
                take(reader, static_cast<size_t>(call.program->states),
                     call.first);  // backward: the gradients of the states before
            });
    }
    Run(const Run&) = delete;

  private:
    static int64_t aligned(int64_t elements) { return round_up(elements, 16); }  // what follows begins on a cache line

    void begin(CellRun<T>& call, const abi::Direction<T>& direction) {
        const Program& program = *static_cast<const Program*>(direction.program);
        call.program = &program;
        call.rows = rows.count;
        call.steps = rows.steps;
        call.tokens = rows.tokens;
        call.lengths = rows.lengths;
        call.offsets = rows.offsets.data();
        call.positions = rows.positions.empty() ? nullptr : rows.positions.data();
        call.order = rows.order.data();
        for (int b = 0; b < BUFFERS; ++b) call.put(static_cast<Buffer>(b), nullptr, 0);
        call.inputs = direction.inputs;
        call.reverse = direction.reverse != 0;
        call.precision = precision_;
        call.put(ROW_MASK, direction.row_mask, program.hidden);
        call.put(STEP_MASK, direction.step_mask, program.states * program.hidden);
    }

    // Assigns the values that are kept for the backward pass; returns the memory after them.
    T* keep(CellRun<T>& call, T* memory) {
        const Program& program = *call.program;
        const int64_t gates = call.tokens * program.width(), kept = call.tokens * program.kept();
        call.kept = memory;
        call.put(GATES, memory, program.width());
        call.put(EXTRA, call.half_kept ? half_at(memory, gates) : memory + gates, program.extra * program.hidden);
        return memory + (call.half_kept ? pairs(kept) : kept);
    }

    // Outputs side by side, and their gradients, whose rows are `distance` apart.
    void place(Layer<T>& layer, T* outputs, T* d_outputs, int64_t distance) {
        layer.outputs = outputs;
        layer.d_outputs = d_outputs;
        for (CellRun<T>& call : layer.calls) {
            call.put(OUTPUT, outputs, layer.width);
            call.put(D_OUTPUT, d_outputs, distance);
            if (outputs) outputs += call.program->hidden;
            if (d_outputs) d_outputs += call.program->hidden;
        }
    }

    template <typename Do>
    void each(const Do& with) {
        for (Layer<T>& layer : layers)
            for (CellRun<T>& call : layer.calls) with(call);
    }

    template <typename Pointer>
    static void take(abi::Reader& reader, size_t count, std::vector<Pointer>& to) {
        to.resize(count);
        for (Pointer& place : to) place = reader.take<T*>();
    }

    Precision precision_;
    std::vector<int64_t> row_of_;  // the embedded row that each position reads, where repeated rows are written once
    std::vector<T> same_;          // one row of d_outputs, if all rows are the same
};

}  // namespace weft
