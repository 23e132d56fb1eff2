// The weights that a time loop multiplies by, in panels: packed once for all threads, or by each thread for itself.
//
// Lines that another core has written or read last cost several times as much as a core's own, and between distant
// cores more than packing itself. So each thread packs weights up to kOwnBytes into memory that no other thread
// touches. Weights that are kept from call to call are packed already, and all threads read them.
#pragma once

#include <memory>

#include "layer_weights.hpp"

namespace weft {

constexpr int64_t kOwnBytes = int64_t(4) << 20;

template <typename T>
struct PackedWeights {
    std::vector<Panels<T>> products;  // the weight of each product
    Panels<T> input;                  // weight_ih, if the loop projects its input itself
};

// The packed weights of all directions of a layer, for its forward or its backward loop.
template <typename T>
class LoopWeights {
  public:
    LoopWeights(const std::vector<CellRun<T>>& calls, bool backward, bool is_shared)
        : calls_(calls), backward_(backward) {
        static std::atomic<int64_t> passes{0};
        pass_ = ++passes;
        int64_t elements = 0;
        for (const CellRun<T>& call : calls) {
            shared_.push_back(shape(call));
            if (call.kept_weights) continue;
            each(call, shared_.back(),
                 [&](Panels<T>& panels, int64_t columns) { elements += panels.words() * columns; });
        }
        is_shared_ = is_shared || elements * static_cast<int64_t>(sizeof(T)) > kOwnBytes;
    }

    // Memory and jobs of packing for all threads; nothing if each thread packs for itself.
    void ask(Arena<T>& arena) {
        for (size_t c = 0; is_shared_ && c < calls_.size(); ++c)
            if (!calls_[c].kept_weights)
                each(calls_[c], shared_[c],
                     [&](Panels<T>& panels, int64_t columns) { arena.ask(panels.data, panels.words() * columns); });
    }
    void pack(Jobs& jobs) const {
        for (size_t c = 0; is_shared_ && c < calls_.size(); ++c)
            if (!calls_[c].kept_weights)
                pack_all(calls_[c], shared_[c],
                         [&](int64_t elements, auto job) { jobs.add(elements, std::move(job)); });
    }

    // The weights of a direction, for the calling thread.
    const PackedWeights<T>& of(size_t number) const {
        if (is_shared_ || calls_[number].kept_weights) return shared_[number];
        struct Own {
            int64_t pass = 0;
            Workspace memory;
            PackedWeights<T> weights;
        };
        static thread_local std::vector<std::unique_ptr<Own>> all;
        while (all.size() <= number) all.push_back(std::make_unique<Own>());
        Own& own = *all[number];
        if (own.pass != pass_) {
            Arena<T> arena;
            own.weights = shared_[number];
            each(calls_[number], own.weights,
                 [&](Panels<T>& panels, int64_t columns) { arena.ask(panels.data, panels.words() * columns); });
            arena.settle(own.memory);
            pack_all(calls_[number], own.weights, [](int64_t, auto job) { job(); });
            own.pass = pass_;
        }
        return own.weights;
    }

  private:
    PackedWeights<T> shape(const CellRun<T>& call) const {
        PackedWeights<T> weights;
        if (const LayerWeights<T>* kept = call.kept_weights) {
            for (const auto& product : kept->products) weights.products.push_back(product->panels());
            if (kept->input) weights.input = kept->input->panels();
            return weights;
        }
        for (const ProductShape& product : call.program->products)
            weights.products.push_back(
                {nullptr, call.program->hidden * (backward_ ? product.blocks() : 1), call.precision});
        weights.input = {nullptr, call.inputs, call.precision};
        return weights;
    }

    bool has_input(const CellRun<T>& call) const { return call.fused_input && !backward_; }
    int64_t columns(const CellRun<T>& call, size_t k) const {
        return backward_ ? call.backward_columns() : call.forward_columns(k);
    }

    // Calls visit(panels, columns) for every weight of a direction.
    template <typename Visit>
    void each(const CellRun<T>& call, PackedWeights<T>& weights, const Visit& visit) const {
        for (size_t k = 0; k < weights.products.size(); ++k) visit(weights.products[k], columns(call, k));
        if (has_input(call)) visit(weights.input, call.input_columns());
    }

    // Calls add(elements, job) with a job for every panel of a direction.
    template <typename Add>
    void pack_all(const CellRun<T>& call, const PackedWeights<T>& weights, const Add& add) const {
        const int64_t H = call.program->hidden;
        for (size_t k = 0; k < weights.products.size(); ++k) {
            const Panels<T>& panels = weights.products[k];
            const auto blocks = std::make_shared<const std::vector<WeightBlock<T>>>(call.weights(k));
            for (int64_t p = 0; p < columns(call, k) / kPanel<T>; ++p)
                add(panels.depth * kPanel<T>, [this, &panels, blocks, H, p] {
                    const auto count = static_cast<int64_t>(blocks->size());
                    panels.fill(p, [&](T* panel) {
                        if (backward_)
                            pack_backward(blocks->data(), count, H, p, panel);
                        else
                            pack_forward(blocks->data(), count, H, p, panel);
                    });
                });
        }
        for (int64_t p = 0; has_input(call) && p < call.input_columns() / kPanel<T>; ++p)
            add(call.inputs * kPanel<T>, [&call, &weights, p] {
                weights.input.fill(p, [&](T* panel) {
                    pack_transposed(call.parameters[0], call.inputs, call.program->width(), p, panel);
                });
            });
    }

    const std::vector<CellRun<T>>& calls_;
    const bool backward_;
    int64_t pass_;
    bool is_shared_;
    std::vector<PackedWeights<T>> shared_;
};

}  // namespace weft
