// A stack of layers and an output layer, one step at a time for a few rows: weights are packed once and kept.
//
// A step costs one pass over the weights. `sample` keeps the whole way from a token to the next one here: step, chances,
// choice, and round again.
#pragma once

#include <memory>

#include "run.hpp"

namespace weft {

template <typename T>
class Memory {  // aligned, owned
  public:
    explicit Memory(int64_t count) : data_(workspace_.numbers<T>(std::max<int64_t>(count, 1))) {}
    T* data() { return data_; }

  private:
    Workspace workspace_;
    T* data_;
};

template <typename T>
struct StreamLayer {
    Call<T> call;  // of one step; its states are read and written in place
    int64_t columns;
    std::unique_ptr<Memory<T>> input_weights, input, vectors;
    std::vector<std::unique_ptr<Memory<T>>> packed;
    std::vector<T> bias;
};

template <typename T>
class Stream {
  public:
    // data: rows, ids?, layers, then for each its program, how many inputs, and its parameters; then vocabulary (or 0 for
    // no output layer), its weight (V, H) and bias.
    explicit Stream(const int64_t* data) {
        auto pointer = [](int64_t address) { return reinterpret_cast<const T*>(address); };
        rows_ = *data++;
        by_id_ = *data++ != 0;
        const int64_t layers = *data++;
        for (int64_t r = 0; r < rows_; ++r) row_numbers_.push_back(r);
        for (int64_t n = 0; n < layers; ++n) {
            layers_.emplace_back();
            StreamLayer<T>& layer = layers_.back();
            Call<T>& call = layer.call;
            call.program = reinterpret_cast<const Program*>(*data++);
            const Program& program = *call.program;
            call.inputs = *data++;
            for (size_t i = 0; i < program.parameters.size(); ++i) call.parameters.push_back(pointer(*data++));
            call.rows = call.tokens = rows_;
            call.steps = 1;
            call.reverse = call.train = false;
            call.lengths = call.ids = nullptr;
            call.sums = nullptr;
            call.offsets = row_numbers_;
            for (int b = 0; b < BUFFERS; ++b) call.put(static_cast<Buffer>(b), nullptr, 0);
            const int64_t width = program.width();
            layer.columns = round_up(width, kPanel<T>);
            layer.bias.assign(static_cast<size_t>(layer.columns), T(0));
            fill_bias(call, layer.bias.data());
            call.by_id = n == 0 && by_id_;
            if (call.by_id) {  // a row for each token
                layer.input = std::make_unique<Memory<T>>(call.inputs * width);
                call.put(INPUT, layer.input->data(), width);
                project_ids(call, layer.bias.data(), 0, call.inputs, [](int64_t i) { return i; });
            } else {
                layer.input_weights = std::make_unique<Memory<T>>(layer.columns * call.inputs);
                pack_all(call.parameters[0], call.inputs, width, layer.input_weights->data());
                layer.input = std::make_unique<Memory<T>>(rows_ * layer.columns);
                call.put(INPUT, layer.input->data(), layer.columns);
            }
            layer.vectors = std::make_unique<Memory<T>>(vector_numbers(call));
            fill_vectors(call, layer.vectors->data());
            call.put(VECTORS, layer.vectors->data(), 0);
            outputs_.push_back(std::make_unique<Memory<T>>(rows_ * program.hidden));
            call.put(OUTPUT, outputs_.back()->data(), program.hidden);
            for (size_t k = 0; k < program.products.size(); ++k) {
                const std::vector<WeightBlock<T>> blocks = call.weights(k);
                layer.packed.push_back(std::make_unique<Memory<T>>(call.forward_columns(k) * program.hidden));
                call.packed.push_back(layer.packed.back()->data());
                for (int64_t p = 0; p < call.forward_columns(k) / kPanel<T>; ++p)
                    pack_forward(blocks.data(), static_cast<int64_t>(blocks.size()), program.hidden, p, call.packed[k]);
            }
            call.parameters.clear();  // all is copied: they may change
        }
        vocabulary_ = *data++;
        if (vocabulary_) {
            const T *weight = pointer(data[0]), *bias = pointer(data[1]);
            const int64_t H = layers_.back().call.program->hidden;
            output_columns_ = round_up(vocabulary_, kPanel<T>);
            output_weights_ = std::make_unique<Memory<T>>(output_columns_ * H);
            pack_all(weight, H, vocabulary_, output_weights_->data());
            output_bias_.assign(static_cast<size_t>(output_columns_), T(0));
            if (bias) std::copy_n(bias, vocabulary_, output_bias_.begin());
            logits_ = std::make_unique<Memory<T>>(rows_ * output_columns_);
        }
    }

    // States: a pointer (rows, H) for each part of each layer, those before and then those after. Input: ids (rows) or
    // numbers (rows, I). The result, (rows, V) or (rows, H), goes to `result`.
    int step(const int64_t* ids, const T* numbers, T* const* states, T* result) {
        if (by_id_)
            for (int64_t r = 0; r < rows_; ++r)
                if (ids[r] < 0 || ids[r] >= layers_[0].call.inputs) return 2;
        advance(ids, numbers, states, states + parts());
        const int64_t width = vocabulary_ ? vocabulary_ : layers_.back().call.program->hidden;
        const int64_t stride = vocabulary_ ? output_columns_ : width;
        const T* from = vocabulary_ ? logits_->data() : outputs_.back()->data();
        for (int64_t r = 0; r < rows_; ++r) std::copy_n(from + r * stride, width, result + r * width);
        return 0;
    }

    struct Choice {
        double temperature;
        int64_t top_k;
        double top_p;
        const int64_t* banned;
        int64_t banned_count, end;  // end: the token after which a row writes no more, or -1
    };

    // From the tokens `ids` on, `count` more for each row to `chosen` (rows, count); -1 from a row's end on.
    int sample(int64_t* ids, T* const* states, const double* uniforms, int64_t count, const Choice& choice, int64_t* chosen) {
        if (!by_id_ || !vocabulary_) return 3;
        std::vector<bool> ended(static_cast<size_t>(rows_), false);
        std::fill_n(chosen, rows_ * count, -1);
        for (int64_t r = 0; r < rows_; ++r)
            if (ids[r] < 0 || ids[r] >= layers_[0].call.inputs) return 2;
        for (int64_t n = 0; n < count; ++n) {
            advance(ids, nullptr, states, states);
            bool all_ended = true;
            for (int64_t r = 0; r < rows_; ++r) {
                if (ended[static_cast<size_t>(r)]) continue;
                const int64_t next = pick(logits_->data() + r * output_columns_, uniforms[r * count + n], choice);
                ended[static_cast<size_t>(r)] = next == choice.end;
                if (next == choice.end) continue;
                if (next >= layers_[0].call.inputs) return 2;
                chosen[r * count + n] = ids[r] = next;
                all_ended = false;
            }
            if (all_ended) break;
        }
        return 0;
    }

  private:
    static void pack_all(const T* weight, int64_t depth, int64_t columns, T* packed) {
        for (int64_t p = 0; p * kPanel<T> < columns; ++p) {
            T* panel = packed + p * kPanel<T> * depth;
            const int64_t some = std::min<int64_t>(kPanel<T>, columns - p * kPanel<T>);
            turn_into_panel(weight + p * kPanel<T> * depth, depth, depth, 0, some, panel);
            clear_panel(depth, some, panel);
        }
    }

    int64_t parts() const {
        int64_t count = 0;
        for (const StreamLayer<T>& layer : layers_) count += layer.call.program->states;
        return count;
    }

    void advance(const int64_t* ids, const T* numbers, T* const* before, T* const* after) {
        for (size_t n = 0; n < layers_.size(); ++n) {
            StreamLayer<T>& layer = layers_[n];
            Call<T>& call = layer.call;
            const int64_t S = call.program->states;
            call.first.assign(before, before + S);
            call.last.assign(after, after + S);
            before += S;
            after += S;
            if (n == 0 && by_id_) {
                call.ids = ids;
            } else {
                multiply(rows_, numbers, call.inputs, layer.input_weights->data(), call.inputs, layer.columns, call.base[INPUT],
                         layer.columns, [&](int64_t n) { return Where<const T>{layer.bias.data() + n, 0, nullptr}; }, [] {});
            }
            Loop<T>(call, call.program->run, row_numbers_, nullptr).forward();
            numbers = outputs_[n]->data();
        }
        if (!vocabulary_) return;
        const int64_t H = layers_.back().call.program->hidden;
        multiply(rows_, numbers, H, output_weights_->data(), H, output_columns_, logits_->data(), output_columns_,
                 [&](int64_t n) { return Where<const T>{output_bias_.data() + n, 0, nullptr}; }, [] {});
    }

    // Sharpened by the temperature; the top_k likeliest; of those the fewest that reach top_p; then where the number
    // falls on the cumulated chances in the vocabulary's order.
    int64_t pick(const T* logits, double uniform, const Choice& choice) {
        const auto V = static_cast<size_t>(vocabulary_);
        chances_.resize(V);
        double most = -__builtin_inf();
        for (size_t v = 0; v < V; ++v) chances_[v] = static_cast<double>(logits[v]) / choice.temperature;
        for (int64_t i = 0; i < choice.banned_count; ++i) chances_[static_cast<size_t>(choice.banned[i])] = -__builtin_inf();
        for (double value : chances_) most = value > most ? value : most;
        double total = 0;
        for (double& value : chances_) total += value = __builtin_exp(value - most);
        if ((choice.top_k > 0 && choice.top_k < vocabulary_) || choice.top_p < 1) {
            order_.resize(V);
            std::iota(order_.begin(), order_.end(), 0);
            std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return chances_[a] > chances_[b]; });
            const size_t most_kept = choice.top_k > 0 ? std::min(V, static_cast<size_t>(choice.top_k)) : V;
            total = 0;
            for (size_t i = 0; i < most_kept; ++i) total += chances_[order_[i]];
            double before = 0;
            size_t kept = 0;
            for (; kept < most_kept && before < choice.top_p * total; ++kept) before += chances_[order_[kept]];
            for (size_t i = kept; i < V; ++i) chances_[order_[i]] = 0;
            total = 0;
            for (double value : chances_) total += value;
        }
        const double mark = uniform * total;
        double sum = 0;
        size_t last = 0;
        for (size_t v = 0; v < V; ++v) {
            if (chances_[v] > 0) last = v;
            if ((sum += chances_[v]) > mark) return static_cast<int64_t>(v);
        }
        return static_cast<int64_t>(last);
    }

    int64_t rows_, vocabulary_, output_columns_ = 0;
    bool by_id_;
    std::vector<int64_t> row_numbers_;
    std::vector<StreamLayer<T>> layers_;
    std::vector<std::unique_ptr<Memory<T>>> outputs_;
    std::unique_ptr<Memory<T>> output_weights_, logits_;
    std::vector<T> output_bias_;
    std::vector<double> chances_;
    std::vector<size_t> order_;
};

}  // namespace weft
