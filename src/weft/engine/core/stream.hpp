// A stack of layers and an output layer, one step at a time, with weights that are packed once.
//
// The cost of a step of a few rows is one pass over the weights, which threads divide by columns. Many rows are divided
// into blocks, which threads take through all layers. `sample` does everything from one token to the next here: step,
// probabilities, choice.
#pragma once

#include <mutex>

#include "adaptive_threading.hpp"
#include "sampling.hpp"
#include "stream_layer.hpp"

namespace weft {

constexpr int64_t kStreamTiles = 8;  // of rows in a block: its values stay in the second-level cache

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
        for (int64_t n = 0; n < call.layers; ++n) {
            const auto* weights = static_cast<const SharedWeights*>(reader.take<abi::StreamLayer<T>>().weights);
            layers_.push_back(std::static_pointer_cast<const LayerWeights<T>>(*weights));
            layers_.back()->each([&](const Weight<T>& weight) { largest_ = std::max(largest_, weight.bytes()); });
            outputs_.push_back(std::make_unique<Memory<T>>(rows_ * hidden(layers_.size() - 1)));
        }
        const int64_t count = std::max<int64_t>(1, (tiles(rows_) + kStreamTiles - 1) / kStreamTiles);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t first = tiles(rows_) * i / count * kTileRows;
            const int64_t last = std::min(tiles(rows_) * (i + 1) / count * kTileRows, rows_);
            blocks_.push_back({first, last - first, {}});
            for (const auto& weights : layers_)
                blocks_.back().layers.push_back(std::make_unique<StreamLayer<T>>(*weights, last - first));
        }
        if (!vocabulary_) return;
        const Precision precision = precision_of<T>(call.precision);
        output_weight_ = std::make_unique<Weight<T>>(hidden(layers_.size() - 1), vocabulary_, precision);
        output_weight_->pack(call.weight, vocabulary_);
        largest_ = std::max(largest_, output_weight_->bytes());
        converted_ = std::make_unique<Memory<T>>(rows_ * output_weight_->converted_row());
        output_bias_.assign(static_cast<size_t>(output_weight_->columns()), T(0));
        if (call.bias) std::copy_n(call.bias, vocabulary_, output_bias_.begin());
        logits_ = std::make_unique<Memory<T>>(rows_ * output_weight_->columns());
    }

    Status step(const abi::StreamStepCall<void>& call, void* const* states) override {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto* ids = by_id_ ? static_cast<const int64_t*>(call.x) : nullptr;
        const T* values = by_id_ ? nullptr : static_cast<const T*>(call.x);
        T* result = static_cast<T*>(call.result);
        if (ids && !ids_in_range(ids)) return Status::id_out_of_range;
        T* const* before = reinterpret_cast<T* const*>(states);
        auto work = [&](bool in_parallel) {
            pool_.run(in_parallel ? call.threads : 1,
                      [&] { advance(ids, values, before, before + parts(), vocabulary_ ? nullptr : result); });
        };
        if (is_shared() && call.threads > 1)
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
        if (is_shared() && call.threads > 1 && call.steps > 0)
            sample_threading_.run(call.steps, work);
        else
            work(false);
        return status;
    }

  private:
    struct Block {  // rows that one thread takes through all layers
        int64_t first, rows;
        std::vector<std::unique_ptr<StreamLayer<T>>> layers;
    };

    bool is_shared() const { return largest_ >= kSharedBytes || blocks_.size() > 1; }
    int64_t hidden(size_t n) const { return layers_[n]->program.hidden; }
    int64_t parts_of(size_t n) const { return layers_[n]->program.states; }

    bool ids_in_range(const int64_t* ids) const {
        return std::all_of(ids, ids + rows_, [&](int64_t id) { return id >= 0 && id < layers_[0]->inputs; });
    }

    const T* logits(int64_t r) { return logits_->data() + r * output_weight_->columns(); }

    int64_t parts() const {
        int64_t count = 0;
        for (size_t n = 0; n < layers_.size(); ++n) count += parts_of(n);
        return count;
    }

    // One step. Writes the logits or, without an output layer, the last layer's output to `result`.
    void advance(const int64_t* ids, const T* values, const T* const* before, T* const* after, T* result) {
        if (blocks_.size() == 1) return advance(blocks_[0], pool_, ids, values, before, after, result);
        pool_.parallel_for(static_cast<int64_t>(blocks_.size()), [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i)
                advance(blocks_[static_cast<size_t>(i)], alone_, ids, values, before, after, result);
        });
    }

    void advance(Block& block, ThreadPool& pool, const int64_t* ids, const T* values, const T* const* before,
                 T* const* after, T* result) {
        if (ids) ids += block.first;
        if (values) values += block.first * layers_[0]->inputs;
        for (size_t n = 0; n < layers_.size(); ++n) {
            const int64_t place = block.first * hidden(n);
            T* output = (n + 1 == layers_.size() && result ? result : outputs_[n]->data()) + place;
            std::vector<const T*> from(before, before + parts_of(n));
            std::vector<T*> to(after, after + parts_of(n));
            for (const T*& part : from) part += place;
            for (T*& part : to) part += place;
            block.layers[n]->step(pool, n == 0 ? ids : nullptr, values, from.data(), to.data(), output);
            before += parts_of(n);
            after += parts_of(n);
            values = output;
        }
        if (!vocabulary_) return;
        const int64_t columns = output_weight_->columns();
        output_weight_->multiply(pool, block.rows, values, hidden(layers_.size() - 1),
                                 converted_->data() + block.first * output_weight_->converted_row(),
                                 logits_->data() + block.first * columns, columns, [this](int64_t n) {
                                     return Where<const T>{output_bias_.data() + n, 0, nullptr};
                                 });
    }

    static void count_token(std::vector<SeenToken>& seen, int64_t id) {
        const auto same = [id](const SeenToken& token) { return token.id == id; };
        const auto found = std::find_if(seen.begin(), seen.end(), same);
        if (found == seen.end())
            seen.push_back({id, 1});
        else
            ++found->generated;
    }

    Status write(const abi::SampleCall<void>& call, T* const* states) {
        const int64_t count = call.steps;
        int64_t* ids = call.ids;
        // Alternates between the caller's memory and a copy: the input and output of a step must not overlap.
        std::vector<T*> here(states, states + parts()), there;
        std::vector<int64_t> sizes;
        for (size_t n = 0; n < layers_.size(); ++n)
            sizes.insert(sizes.end(), static_cast<size_t>(parts_of(n)), rows_ * hidden(n));
        Memory<T> copy(std::accumulate(sizes.begin(), sizes.end(), int64_t(0)));
        T* next = copy.data();
        for (int64_t size : sizes) {
            there.push_back(next);
            next += size;
        }
        std::vector<bool> ended(static_cast<size_t>(rows_), false);
        std::vector<std::vector<SeenToken>> seen(static_cast<size_t>(rows_));
        for (int64_t r = 0; call.seen_begins && r < rows_; ++r)
            for (int64_t i = call.seen_begins[r]; i < call.seen_begins[r + 1]; ++i)
                seen[static_cast<size_t>(r)].push_back({call.seen_ids[i], call.seen_counts[i]});
        for (int64_t n = 0; n < count; ++n) {
            advance(ids, nullptr, here.data(), there.data(), nullptr);
            std::swap(here, there);
            bool all_ended = true;
            for (int64_t r = 0; r < rows_; ++r) {
                if (ended[static_cast<size_t>(r)]) continue;
                auto& text = seen[static_cast<size_t>(r)];
                const int64_t token = sampler_.choose(logits(r), vocabulary_, call.uniforms[r * count + n], call, text);
                ended[static_cast<size_t>(r)] = token == call.end;
                if (token == call.end) continue;
                if (token >= layers_[0]->inputs) return Status::id_out_of_range;
                call.tokens[r * count + n] = ids[r] = token;
                if (call.seen_begins) count_token(text, token);
                all_ended = false;
            }
            if (all_ended) break;
        }
        if (here[0] != states[0])
            for (size_t i = 0; i < sizes.size(); ++i) std::copy_n(here[i], sizes[i], states[i]);
        return Status::ok;
    }

    std::mutex mutex_;                         // steps share the buffers of this object
    int64_t rows_, vocabulary_, largest_ = 0;  // largest_: bytes of the largest weight
    bool by_id_;
    std::vector<std::shared_ptr<const LayerWeights<T>>> layers_;
    std::vector<Block> blocks_;
    std::vector<std::unique_ptr<Memory<T>>> outputs_;
    std::unique_ptr<Weight<T>> output_weight_;
    std::unique_ptr<Memory<T>> converted_, logits_;  // converted_: the operand of the output layer
    std::vector<T> output_bias_;
    Sampler sampler_;
    ThreadPool pool_, alone_;  // alone_: of one thread, inside a block
    AdaptiveThreading step_threading_, sample_threading_;
};

}  // namespace weft
