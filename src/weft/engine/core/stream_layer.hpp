// One layer of a stream over one block of rows: its work areas, and its step.
#pragma once

#include "initial_sums.hpp"
#include "run.hpp"

namespace weft {

// One layer over a block of rows: the program of a cell, one step at a time.
template <typename T>
class StreamLayer {
  public:
    StreamLayer(const LayerWeights<T>& weights, int64_t rows)
        : weights_(weights), program_(weights.program), code_(program_.run), rows_(rows), H_(program_.hidden),
          products_memory_(rows * columns(PRODUCT)), operands_(rows * columns(OPERAND)),
          scratch_(rows * columns(SCRATCH)), projected_(weights.input ? rows * weights.input->columns() : 0),
          converted_(rows * converted_row()), arena_(Interpreter<T>::arena_size(code_, H_)),
          interpreter_(code_, H_, arena_.data(), {}) {
        input_ = weights.table ? weights.table->data() : projected_.data();
        input_stride_ = weights.input ? weights.input->columns() : program_.width();
        std::fill_n(products_memory_.data(), rows * columns(PRODUCT), T(0));  // columns that pad the last panel
        for (size_t p = 0; p < code_.places.size(); ++p) interpreter_.where(p) = locate(code_.places[p]);
    }
    StreamLayer(const StreamLayer&) = delete;

    // One step from ids (rows) or, if nullptr, values (rows, I), and the state before, to the state after and the
    // output (rows, H). Every part of a state is (rows, H). Inputs and outputs must not overlap.
    void step(ThreadPool& pool, const int64_t* ids, const T* values, const T* const* before, T* const* after,
              T* output) {
        if (weights_.input)
            weights_.input->multiply(pool, rows_, values, weights_.inputs, converted_.data(), projected_.data(),
                                     input_stride_, [this](int64_t n) {
                                         return Where<const T>{weights_.bias.data() + n, 0, nullptr};
                                     });
        for (size_t p = 0; p < code_.places.size(); ++p) {
            const Place& place = code_.places[p];
            Where<T>& where = interpreter_.where(p);
            if (place.buffer == STATE) where.base = const_cast<T*>(before[place.block]);
            if (place.buffer == NEW_STATE) where.base = after[place.block];
            if (place.buffer == OUTPUT) where.base = output;
            if (place.buffer == INPUT) where.index = ids;
        }
        interpreter_.run(code_.segments[0], rows_);
        for (size_t k = 0; k < program_.products.size(); ++k) {
            const Where<T> to{product(k), columns(PRODUCT), nullptr}, from{input_, input_stride_, ids};
            const T* vectors = weights_.vectors->data();
            initial_.begin(k, rows_, from, vectors, to);
            const int state = program_.products[k].state;
            const T* a = state >= 0 ? before[state] : operands_.data() + static_cast<int64_t>(k) * H_;
            weights_.products[k]->multiply(pool, rows_, a, state >= 0 ? H_ : columns(OPERAND), converted_.data(),
                                           to.base, to.stride,
                                           [&](int64_t n) { return initial_.of(k, n, from, vectors, to); });
            interpreter_.run(code_.segments[k + 1], rows_);
        }
    }

  private:
    int64_t converted_row() const {
        int64_t most = 0;
        weights_.each([&](const Weight<T>& weight) { most = std::max(most, weight.converted_row()); });
        return most;
    }
    int64_t product_columns(size_t k) const { return round_up(program_.products[k].blocks() * H_, kPanel<T>); }
    int64_t columns(Buffer buffer) const {
        if (buffer == OPERAND) return static_cast<int64_t>(program_.products.size()) * H_;
        if (buffer == SCRATCH) return code_.scratch * H_;
        int64_t all = 0;
        for (size_t k = 0; k < program_.products.size(); ++k) all += product_columns(k);
        return all;
    }
    T* product(size_t k) {
        T* place = products_memory_.data();
        for (size_t before = 0; before < k; ++before) place += product_columns(before);
        return place;
    }

    Where<T> locate(const Place& place) {
        const int64_t column = place.block * H_;
        switch (place.buffer) {
            case PRODUCT: return {product(static_cast<size_t>(place.part)) + column, columns(PRODUCT), nullptr};
            case OPERAND: return {operands_.data() + place.part * H_, columns(OPERAND), nullptr};
            case SCRATCH: return {scratch_.data() + column, columns(SCRATCH), nullptr};
            case VECTORS: return {weights_.vectors->data() + column, 0, nullptr};
            case INPUT: return {input_ + column, input_stride_, nullptr};
            default: return {nullptr, H_, nullptr};  // the caller's memory, set at each step
        }
    }

    const LayerWeights<T>& weights_;
    const Program& program_;
    const Code& code_;
    int64_t rows_, H_;
    const InitialSums<T> initial_{program_};
    Memory<T> products_memory_, operands_, scratch_, projected_, converted_, arena_;
    Interpreter<T> interpreter_;
    T* input_;
    int64_t input_stride_;
};

}  // namespace weft
