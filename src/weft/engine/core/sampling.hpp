// Sampling of the next token, with the same choices as weft.decoding makes.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "abi.hpp"
#include "vector.hpp"

namespace weft {

class Sampler {
  public:
    // Applies the temperature, keeps the top_k most probable tokens, of those the fewest that reach top_p, and inverts
    // the cumulative distribution in the order of the vocabulary at `uniform`.
    template <typename T>
    int64_t choose(const T* logits, int64_t vocabulary, double uniform, const abi::SampleCall<void>& choice) {
        const auto V = static_cast<size_t>(vocabulary);
        weigh(logits, V, choice);
        if ((choice.top_k > 0 && choice.top_k < vocabulary) || choice.top_p < 1) keep_most_probable(V, choice);
        double total = 0;
        for (size_t v = 0; v < V; ++v) total += probabilities_[v];
        const double mark = uniform * total;
        double sum = 0;
        size_t last = 0;
        for (size_t v = 0; v < V; ++v) {
            if (probabilities_[v] > 0) last = v;
            if ((sum += probabilities_[v]) > mark) return static_cast<int64_t>(v);
        }
        return static_cast<int64_t>(last);
    }

  private:
    template <typename T>
    void weigh(const T* logits, size_t V, const abi::SampleCall<void>& choice) {
        constexpr size_t width = static_cast<size_t>(kWidth<double>);
        probabilities_.assign((V + width - 1) / width * width, -__builtin_inf());
        for (size_t v = 0; v < V; ++v) probabilities_[v] = static_cast<double>(logits[v]) / choice.temperature;
        for (int64_t i = 0; i < choice.banned_count; ++i)
            probabilities_[static_cast<size_t>(choice.banned[i])] = -__builtin_inf();
        double most = -__builtin_inf();
        for (double value : probabilities_) most = value > most ? value : most;
        for (size_t v = 0; v < V; v += width) {
            const Vec<double> probability = exp_vector<double>(load(&probabilities_[v]) - most);
            store(&probabilities_[v], probability >= 0.0 ? probability : Vec<double>{});  // NaN gets probability 0
        }
        for (int64_t i = 0; i < choice.banned_count; ++i) probabilities_[static_cast<size_t>(choice.banned[i])] = 0;
    }

    // Sorts only as far as needed: usually few tokens of a large vocabulary are kept.
    void keep_most_probable(size_t V, const abi::SampleCall<void>& choice) {
        const size_t most_kept = choice.top_k > 0 ? std::min(V, static_cast<size_t>(choice.top_k)) : V;
        order_.resize(V);
        std::iota(order_.begin(), order_.end(), size_t(0));
        const auto more_probable = [&](size_t a, size_t b) {
            return probabilities_[a] > probabilities_[b] || (probabilities_[a] == probabilities_[b] && a < b);
        };
        const auto place = [&](size_t n) { return order_.begin() + static_cast<std::ptrdiff_t>(n); };
        size_t sorted = 0;
        const auto sort_to = [&](size_t n) {
            if (n < V) std::nth_element(place(sorted), place(n - 1), order_.end(), more_probable);
            std::sort(place(sorted), place(n), more_probable);
            sorted = n;
        };
        if (most_kept < V) sort_to(most_kept);
        double total = 0, before = 0;
        for (size_t i = 0; i < most_kept; ++i) total += probabilities_[order_[i]];
        size_t kept = 0;
        for (; kept < most_kept && before < choice.top_p * total; ++kept) {
            if (kept == sorted) sort_to(std::min(V, std::max<size_t>(64, 4 * sorted)));
            before += probabilities_[order_[kept]];
        }
        for (size_t i = kept; i < V; ++i) probabilities_[order_[i]] = 0;
    }

    std::vector<double> probabilities_;
    std::vector<size_t> order_;
};

}  // namespace weft
