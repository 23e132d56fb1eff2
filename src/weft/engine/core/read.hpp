// What Python hands over (engine/run.py), as the calls of all layers of one run.
#pragma once

#include "call.hpp"
#include "embedding.hpp"

namespace weft {

// Directions over the same rows, side by side, and the noise on what they read.
template <typename T>
struct Layer {
    std::vector<Call<T>> calls;
    Noise noise;
    int64_t width = 0;
    T *outputs = nullptr, *d_outputs = nullptr;
    Layer(size_t directions, const Noise& noise) : calls(directions), noise(noise) {}
};

// The numbers begin with what all layers share:
//     rows, steps, lengths, ids, x, d_x, memory, d_memory, outputs, d_outputs, the distance of its rows (0: it is one number
//     for all), whether it is to train; what the first layer reads instead of x (Embedding::read, or 0); layers.
// Then, for each layer: directions, keep and seed of its noise; and for each of its directions: program, inputs, reverse,
//     row_mask, step_mask.
// Then for each direction its parameters and the states before; for each the states after, or, on the way back, their
// gradients; and on the way back for each the gradients of its parameters and of the states before.
// `memory` begins with the rows that are read instead of x; layer after layer, it holds what its directions keep, to train,
// and its outputs, but those of the last. `d_memory` holds the gradients of such rows, if they are wanted, and outputs.
template <typename T>
class Run {
  public:
    Rows rows;
    Embedding<T> embedding;
    std::vector<Layer<T>> layers;

    Run(const int64_t* data, bool back) : rows(data[0], data[1], reinterpret_cast<const int64_t*>(data[2])) {
        const int64_t* ids = reinterpret_cast<const int64_t*>(data[3]);
        T *x = pointer(data[4]), *d_x = pointer(data[5]), *memory = pointer(data[6]), *d_memory = pointer(data[7]);
        T *outputs = pointer(data[8]), *d_outputs = pointer(data[9]);
        const int64_t distance = data[10], places = rows.count * rows.steps;
        const bool train = data[11] != 0;
        int64_t distinct = 0;
        data += 12;
        embedding.read(data);
        if (!embedding.tables.empty()) {
            embedding.count = rows.tokens;
            embedding.steps = rows.steps;
            embedding.places = rows.places.empty() ? nullptr : rows.places.data();
            x = memory;
            memory += aligned(places * embedding.width);
            if (back && embedding.is_wanted()) {
                d_x = d_memory;
                d_memory += aligned(places * embedding.width);
            }
            embedding.numbers = back ? d_x : x;
            if (!back && !train) {
                which_.assign(static_cast<size_t>(places), 0);
                distinct = embedding.without_repeats(which_);
            }
            if (distinct) ids = which_.data();
        }
        const auto count = static_cast<size_t>(*data++);
        for (size_t n = 0; n < count; ++n) {
            layers.emplace_back(static_cast<size_t>(data[0]), Noise{static_cast<uint64_t>(data[2]), static_cast<uint32_t>(data[1])});
            Layer<T>& layer = layers.back();
            data += 3;
            for (Call<T>& call : layer.calls) {
                begin(call, data);
                call.ids = ids;
                call.distinct = distinct;
                call.x = x;
                call.d_x = d_x;
                call.train = train;
                if (train) memory = keep(call, memory);
                layer.width += call.program->hidden;
            }
            if (n + 1 < count) {
                place(layer, memory, d_memory, layer.width);
                memory += places * layer.width;
                if (back) d_memory += places * layer.width;
            } else if (back && !distance) {
                same_.assign(static_cast<size_t>(layer.width), d_outputs ? *d_outputs : T(0));
                place(layer, outputs, same_.data(), 0);
            } else {
                place(layer, outputs, d_outputs, distance);
            }
            ids = nullptr;
            distinct = 0;
            x = layer.outputs;
            d_x = layer.d_outputs;
        }
        each([&](Call<T>& call) {
            take(data, call.program->parameters.size(), call.parameters);
            take(data, static_cast<size_t>(call.program->states), call.first);
        });
        each([&](Call<T>& call) { take(data, static_cast<size_t>(call.program->states), call.last); });
        if (back)
            each([&](Call<T>& call) {
                take(data, call.program->parameters.size(), call.gradients);
                take(data, static_cast<size_t>(call.program->states), call.first);  // instead of what they were forward
            });
    }
    Run(const Run&) = delete;

  private:
    static int64_t aligned(int64_t numbers) { return round_up(numbers, 16); }  // so that what follows begins on a cache line
    static T* pointer(int64_t number) { return reinterpret_cast<T*>(number); }

    void begin(Call<T>& call, const int64_t*& data) {
        const Program& program = *reinterpret_cast<const Program*>(data[0]);
        call.program = &program;
        call.rows = rows.count;
        call.steps = rows.steps;
        call.tokens = rows.tokens;
        call.lengths = rows.lengths;
        call.offsets = rows.offsets.data();
        call.places = rows.places.empty() ? nullptr : rows.places.data();
        call.order = rows.order.data();
        for (int b = 0; b < BUFFERS; ++b) call.put(static_cast<Buffer>(b), nullptr, 0);
        call.inputs = data[1];
        call.reverse = data[2] != 0;
        call.put(ROW_MASK, pointer(data[3]), program.hidden);
        call.put(STEP_MASK, pointer(data[4]), program.states * program.hidden);
        call.packed.resize(program.products.size());
        data += 5;
    }

    // What stands in `memory` for the way back; gives what comes after it.
    T* keep(Call<T>& call, T* memory) {
        const Program& program = *call.program;
        call.kept = memory;
        call.put(GATES, memory, program.width());
        call.put(EXTRA, memory + call.tokens * program.width(), program.extra * program.hidden);
        return memory + call.tokens * program.kept();
    }

    // Outputs side by side, and their gradients, whose rows are `distance` apart.
    void place(Layer<T>& layer, T* outputs, T* d_outputs, int64_t distance) {
        layer.outputs = outputs;
        layer.d_outputs = d_outputs;
        for (Call<T>& call : layer.calls) {
            call.put(OUTPUT, outputs, layer.width);
            call.put(D_OUTPUT, d_outputs, distance);
            if (outputs) outputs += call.program->hidden;
            if (d_outputs) d_outputs += call.program->hidden;
        }
    }

    template <typename Do>
    void each(const Do& with) {
        for (Layer<T>& layer : layers)
            for (Call<T>& call : layer.calls) with(call);
    }

    template <typename Pointer>
    static void take(const int64_t*& data, size_t count, std::vector<Pointer>& to) {
        to.resize(count);
        for (Pointer& place : to) place = pointer(*data++);
    }

    std::vector<int64_t> which_;  // row of what is embedded is read at each place, where what repeats is written once
    std::vector<T> same_;  // where rows of the last d_outputs are all the same, one of them
};

}  // namespace weft
