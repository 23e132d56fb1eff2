// A stack of layers and an output layer, one step at a time for a few rows, with weights that are packed once.
//
// The cost of a step is one pass over the weights. `sample` does everything from one token to the next here: step,
// probabilities, choice.
#pragma once

#include <memory>
#include <mutex>

#include "adaptive_threading.hpp"
#include "interpreter.hpp"
#include "run.hpp"
#include "sampling.hpp"
#include "thread_pool.hpp"

namespace weft {

constexpr int64_t kSharedBytes = int64_t(1) << 16;  // of a weight; one thread reads them in half a microsecond

template <typename T>
class Memory {  // aligned, owned
  public:
    explicit Memory(int64_t count) : data_(workspace_.elements<T>(std::max<int64_t>(count, 1))) {}
    T* data() { return data_; }

  private:
    Workspace workspace_;
    T* data_;
};

// A packed weight: C = start + A W^T for a few rows, in pieces of columns.
template <typename T>
class Weight {
  public:
    Weight(int64_t rows, int64_t depth, int64_t columns, Precision precision)
        : columns_(round_up(columns, kPanel<T>)), packed_(panel_words(precision, depth) * columns_),
          converted_(rows * converted_stride(precision, depth)), panels_{packed_.data(), depth, precision} {}

    void pack(const T* weight, int64_t columns) {  // (columns, depth)
        for (int64_t p = 0; p < columns_ / kPanel<T>; ++p)
            panels_.fill(p, [&](T* panel) { pack_transposed(weight, panels_.depth, columns, p, panel); });
    }
    void pack(const std::vector<WeightBlock<T>>& blocks) {
        for (int64_t p = 0; p < columns_ / kPanel<T>; ++p)
            panels_.fill(p, [&](T* panel) {
                pack_forward(blocks.data(), static_cast<int64_t>(blocks.size()), panels_.depth, p, panel);
            });
    }

    template <typename Start>
    void multiply(ThreadPool& pool, int64_t rows, const T* a, int64_t a_stride, T* c, int64_t c_stride,
                  const Start& start) {
        constexpr int64_t unit = kTogether * kPanel<T>;
        const Operand<T> operand = panels_.operand(rows, a, a_stride, converted_.data());
        auto some = [&](int64_t first, int64_t last) {
            const int64_t from = first * unit, to = std::min(last * unit, columns_);
            Panels<T> piece = panels_;
            piece.data = panels_.panel(first * kTogether);
            weft::multiply(
                rows, operand, piece, to - from, c + from, c_stride, [&](int64_t n) { return start(from + n); }, [] {});
        };
        const int64_t pieces = (columns_ + unit - 1) / unit;
        if (bytes() < kSharedBytes)
            some(0, pieces);
        else
            pool.parallel_for(pieces, some);
    }

    int64_t columns() const { return columns_; }
    int64_t bytes() const { return panels_.words() * columns_ * static_cast<int64_t>(sizeof(T)); }

  private:
    int64_t columns_;
    Memory<T> packed_, converted_;  // converted_: the rows of A, where they are not read as they stand
    Panels<T> panels_;
};

// One layer: the program of a cell, one step at a time.
template <typename T>
class StreamLayer {
  public:
    StreamLayer(int64_t rows, bool by_id, Precision precision, const abi::StreamLayer<T>& given, abi::Reader& reader)
        : program_(*static_cast<const Program*>(given.program)), code_(program_.run), rows_(rows), H_(program_.hidden),
          products_memory_(rows * columns(PRODUCT)), operands_(rows * columns(OPERAND)),
          scratch_(rows * columns(SCRATCH)), arena_(Interpreter<T>::arena_size(code_, H_)),
          interpreter_(code_, H_, arena_.data(), nullptr) {
        Direction<T> call{};
        call.program = &program_;
        call.inputs = inputs = given.inputs;
        for (size_t i = 0; i < program_.parameters.size(); ++i) call.parameters.push_back(reader.take<const T*>());
        const int64_t width = program_.width();
        bias_.assign(static_cast<size_t>(round_up(width, kPanel<T>)), T(0));
        fill_bias(call, bias_.data());
        if (by_id) {  // a row for each token
            input_ = std::make_unique<Memory<T>>(inputs * width);
            input_stride_ = width;
            call.put(INPUT, input_->data(), width);
            project_ids(call, bias_.data(), 0, inputs, [](int64_t i) { return i; });
        } else {
            input_weight_ = std::make_unique<Weight<T>>(rows, inputs, width, precision);
            input_weight_->pack(call.parameters[0], width);
            input_stride_ = input_weight_->columns();
            input_ = std::make_unique<Memory<T>>(rows * input_stride_);
        }
        vectors_ = std::make_unique<Memory<T>>(vector_elements(call));
        fill_vectors(call, vectors_->data());
        for (size_t k = 0; k < program_.products.size(); ++k) {
            weights_.push_back(std::make_unique<Weight<T>>(rows, H_, program_.products[k].blocks() * H_, precision));
            weights_.back()->pack(call.weights(k));
        }
        std::fill_n(products_memory_.data(), rows * columns(PRODUCT), T(0));  // columns that pad the last panel
        for (size_t p = 0; p < code_.places.size(); ++p) interpreter_.where(p) = locate(code_.places[p]);
    }
    StreamLayer(const StreamLayer&) = delete;

    // One step from ids (rows) or, if nullptr, values (rows, I), and the state before, to the state after and the
    // output (rows, H). Every part of a state is (rows, H). Inputs and outputs must not overlap.
    void step(ThreadPool& pool, const int64_t* ids, const T* values, const T* const* before, T* const* after,
              T* output) {
        ids_ = ids;
        if (input_weight_)
            input_weight_->multiply(pool, rows_, values, inputs, input_->data(), input_stride_, [this](int64_t n) {
                return Where<const T>{bias_.data() + n, 0, nullptr};
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
            if (!whole_panels_) begin_product(k);
            const int state = program_.products[k].state;
            const T* a = state >= 0 ? before[state] : operands_.data() + static_cast<int64_t>(k) * H_;
            weights_[k]->multiply(pool, rows_, a, state >= 0 ? H_ : columns(OPERAND), product(k), columns(PRODUCT),
                                  [this, k](int64_t n) { return start(k, n); });
            interpreter_.run(code_.segments[k + 1], rows_);
        }
    }

    // Adds the size of the weights to `bytes`, and updates the size of the largest.
    void count(int64_t& bytes, int64_t& largest) const {
        auto add = [&](const Weight<T>& weight) {
            bytes += weight.bytes();
            largest = std::max(largest, weight.bytes());
        };
        if (input_weight_) add(*input_weight_);
        for (const auto& weight : weights_) add(*weight);
    }

    int64_t states() const { return program_.states; }
    int64_t hidden() const { return H_; }
    int64_t inputs = 0;  // features of x, or the size of the vocabulary

  private:
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
            case VECTORS: return {vectors_->data() + column, 0, nullptr};
            case INPUT: return {input_->data() + column, input_stride_, nullptr};
            default: return {nullptr, H_, nullptr};  // the caller's memory, set at each step
        }
    }

    // The initial sums of a product, for the panel of column n: the projected input, a vector, or zero.
    Where<const T> start(size_t k, int64_t n) {
        if (!whole_panels_) return {product(k) + n, columns(PRODUCT), nullptr};
        return begin(k, static_cast<size_t>(n / H_), n % H_);
    }
    Where<const T> begin(size_t k, size_t block, int64_t column) {
        const ProductShape& shape = program_.products[k];
        if (shape.input_block[block] >= 0)
            return {input_->data() + shape.input_block[block] * H_ + column, input_stride_, ids_};
        if (shape.vector[block] >= 0) return {vectors_->data() + shape.vector[block] * H_ + column, 0, nullptr};
        return {};
    }

    // Copies the initial sums to the product's memory, where a panel may cross the end of a block.
    void begin_product(size_t k) {
        for (size_t block = 0; block < program_.products[k].input_block.size(); ++block) {
            const Where<const T> where = begin(k, block, 0);
            for (int64_t r = 0; r < rows_; ++r) {
                T* to = product(k) + r * columns(PRODUCT) + static_cast<int64_t>(block) * H_;
                if (where.base)
                    copy_row(where.row(r), H_, to);
                else
                    std::fill_n(to, H_, T(0));
            }
        }
    }

    const Program& program_;
    const Code& code_;
    int64_t rows_, H_;
    const bool whole_panels_ = H_ % kPanel<T> == 0;  // no panel holds parts of two blocks
    Memory<T> products_memory_, operands_, scratch_, arena_;
    Interpreter<T> interpreter_;
    std::unique_ptr<Weight<T>> input_weight_;
    std::unique_ptr<Memory<T>> input_, vectors_;
    std::vector<std::unique_ptr<Weight<T>>> weights_;
    std::vector<T> bias_;
    int64_t input_stride_ = 0;
    const int64_t* ids_ = nullptr;
};

class AnyStream {
  public:
    virtual ~AnyStream() = default;
    // `states`: the addresses of the parts of all layers' states before, each (rows, H), and of those after.
    virtual Status step(const abi::StreamStepCall<void>& call, void* const* states) = 0;
    // `states`: the same, which change in place.
    virtual Status sample(const abi::SampleCall<void>& call, void* const* states) = 0;
};

template <typename T>
class Stream : public AnyStream {
  public:
    Stream(const abi::StreamCall<T>& call, abi::Reader& reader)
        : rows_(call.rows), vocabulary_(call.vocabulary), by_id_(call.by_id != 0) {
        const Precision precision = precision_of<T>(call.precision);
        for (int64_t n = 0; n < call.layers; ++n) {
            const auto& layer = reader.take<abi::StreamLayer<T>>();
            layers_.push_back(std::make_unique<StreamLayer<T>>(rows_, n == 0 && by_id_, precision, layer, reader));
            layers_.back()->count(bytes_, largest_);
            outputs_.push_back(std::make_unique<Memory<T>>(rows_ * layers_.back()->hidden()));
        }
        if (!vocabulary_) return;
        output_weight_ = std::make_unique<Weight<T>>(rows_, layers_.back()->hidden(), vocabulary_, precision);
        output_weight_->pack(call.weight, vocabulary_);
        bytes_ += output_weight_->bytes();
        largest_ = std::max(largest_, output_weight_->bytes());
        output_bias_.assign(static_cast<size_t>(output_weight_->columns()), T(0));
        if (call.bias) std::copy_n(call.bias, vocabulary_, output_bias_.begin());
        logits_ = std::make_unique<Memory<T>>(rows_ * output_weight_->columns());
    }

    Status step(const abi::StreamStepCall<void>& call, void* const* given) override {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto* ids = by_id_ ? static_cast<const int64_t*>(call.x) : nullptr;
        const T* values = by_id_ ? nullptr : static_cast<const T*>(call.x);
        T* result = static_cast<T*>(call.result);
        if (ids && !ids_in_range(ids)) return Status::id_out_of_range;
        T* const* states = reinterpret_cast<T* const*>(given);
        auto work = [&](bool in_parallel) {
            pool_.run(in_parallel ? call.threads : 1,
                      [&] { advance(ids, values, states, states + parts(), vocabulary_ ? nullptr : result); });
        };
        if (largest_ >= kSharedBytes && call.threads > 1)
            step_threading_.run(1, work);
        else
            work(false);
        if (vocabulary_)
            for (int64_t r = 0; r < rows_; ++r) std::copy_n(logits(r), vocabulary_, result + r * vocabulary_);
        return Status::ok;
    }

    Status sample(const abi::SampleCall<void>& call, void* const* states) override {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (!by_id_ || !vocabulary_) return Status::cannot_sample;
        std::fill_n(call.tokens, rows_ * call.steps, -1);
        if (!ids_in_range(call.ids)) return Status::id_out_of_range;
        Status status = Status::ok;
        auto work = [&](bool in_parallel) {
            pool_.run(in_parallel ? call.threads : 1,
                      [&] { status = write(call, reinterpret_cast<T* const*>(states)); });
        };
        if (largest_ >= kSharedBytes && call.threads > 1 && call.steps > 0)
            sample_threading_.run(call.steps, work);
        else
            work(false);
        return status;
    }

  private:
    bool ids_in_range(const int64_t* ids) const {
        return std::all_of(ids, ids + rows_, [&](int64_t id) { return id >= 0 && id < layers_[0]->inputs; });
    }

    const T* logits(int64_t r) { return logits_->data() + r * output_weight_->columns(); }

    int64_t parts() const {
        int64_t count = 0;
        for (const auto& layer : layers_) count += layer->states();
        return count;
    }

    // One step. Writes the logits or, without an output layer, the last layer's output to `result`.
    void advance(const int64_t* ids, const T* values, const T* const* before, T* const* after, T* result) {
        for (size_t n = 0; n < layers_.size(); ++n) {
            T* output = n + 1 == layers_.size() && result ? result : outputs_[n]->data();
            layers_[n]->step(pool_, n == 0 ? ids : nullptr, values, before, after, output);
            before += layers_[n]->states();
            after += layers_[n]->states();
            values = output;
        }
        if (vocabulary_)
            output_weight_->multiply(pool_, rows_, values, layers_.back()->hidden(), logits_->data(),
                                     output_weight_->columns(), [this](int64_t n) {
                                         return Where<const T>{output_bias_.data() + n, 0, nullptr};
                                     });
    }

    Status write(const abi::SampleCall<void>& call, T* const* states) {
        const int64_t count = call.steps;
        int64_t* ids = call.ids;
        // Alternates between the caller's memory and a copy: the input and output of a step must not overlap.
        std::vector<T*> here(states, states + parts()), there;
        std::vector<int64_t> sizes;
        for (const auto& layer : layers_)
            sizes.insert(sizes.end(), static_cast<size_t>(layer->states()), rows_ * layer->hidden());
        Memory<T> copy(std::accumulate(sizes.begin(), sizes.end(), int64_t(0)));
        T* next = copy.data();
        for (int64_t size : sizes) {
            there.push_back(next);
            next += size;
        }
        std::vector<bool> ended(static_cast<size_t>(rows_), false);
        for (int64_t n = 0; n < count; ++n) {
            advance(ids, nullptr, here.data(), there.data(), nullptr);
            std::swap(here, there);
            bool all_ended = true;
            for (int64_t r = 0; r < rows_; ++r) {
                if (ended[static_cast<size_t>(r)]) continue;
                const int64_t token = sampler_.choose(logits(r), vocabulary_, call.uniforms[r * count + n], call);
                ended[static_cast<size_t>(r)] = token == call.end;
                if (token == call.end) continue;
                if (token >= layers_[0]->inputs) return Status::id_out_of_range;
                call.tokens[r * count + n] = ids[r] = token;
                all_ended = false;
            }
            if (all_ended) break;
        }
        if (here[0] != states[0])
            for (size_t i = 0; i < sizes.size(); ++i) std::copy_n(here[i], sizes[i], states[i]);
        return Status::ok;
    }

    std::mutex mutex_;  // steps share the buffers of this object
    int64_t rows_, vocabulary_, bytes_ = 0, largest_ = 0;
    bool by_id_;
    std::vector<std::unique_ptr<StreamLayer<T>>> layers_;
    std::vector<std::unique_ptr<Memory<T>>> outputs_;
    std::unique_ptr<Weight<T>> output_weight_;
    std::unique_ptr<Memory<T>> logits_;
    std::vector<T> output_bias_;
    Sampler sampler_;
    ThreadPool pool_;
    AdaptiveThreading step_threading_, sample_threading_;
};

}  // namespace weft
