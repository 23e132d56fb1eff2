// Sampling of the next token, with the same choices as weft.decoding.Sample makes.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "abi.hpp"
#include "vector.hpp"

namespace weft {

struct SeenToken {          // of the text of a row so far
    int64_t id, generated;  // generated: how often; 0: only the prompt has it
};

class Sampler {
  public:
    // Penalizes the tokens seen so far, applies the temperature, restricts the tokens, and inverts the cumulative
    // distribution in the order of the vocabulary at `uniform`. `seen` is empty where there is no penalty.
    template <typename T>
    int64_t choose(const T* logits, int64_t vocabulary, double uniform, const abi::SampleCall<void>& choice,
                   const std::vector<SeenToken>& seen) {
        const auto V = static_cast<size_t>(vocabulary);
        weigh(logits, V, choice, seen);
        restrict_tokens(V, choice);
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
    static constexpr size_t kStep = static_cast<size_t>(kWidth<double>);

    // Probabilities up to a factor.
    template <typename T>
    void weigh(const T* logits, size_t V, const abi::SampleCall<void>& choice, const std::vector<SeenToken>& seen) {
        probabilities_.assign((V + kStep - 1) / kStep * kStep, -__builtin_inf());
        for (size_t v = 0; v < V; ++v) probabilities_[v] = static_cast<double>(logits[v]);
        if (!seen.empty()) {  // a penalty multiplies log-probabilities, and not logits
            const double shift = log_sum();
            for (double& value : probabilities_) value -= shift;
        }
        for (int64_t i = 0; i < choice.bias_count; ++i)
            probabilities_[static_cast<size_t>(choice.bias_ids[i])] += choice.bias[i];
        for (const SeenToken& token : seen) {
            if (token.id >= static_cast<int64_t>(V)) continue;
            double& value = probabilities_[static_cast<size_t>(token.id)];
            value = value < 0 ? value * choice.repetition_penalty : value / choice.repetition_penalty;
            if (token.generated > 0)
                value -= choice.presence_penalty + choice.frequency_penalty * static_cast<double>(token.generated);
        }
        double most = -__builtin_inf();
        for (double& value : probabilities_) most = (value /= choice.temperature) > most ? value : most;
        for (size_t v = 0; v < V; v += kStep) {
            const Vec<double> probability = exp_vector<double>(load(&probabilities_[v]) - most);
            store(&probabilities_[v], probability >= 0.0 ? probability : Vec<double>{});  // NaN gets probability 0
        }
    }

    double log_sum() const {
        double most = -__builtin_inf(), sum = 0;
        for (double value : probabilities_) most = value > most ? value : most;
        for (size_t v = 0; v < probabilities_.size(); v += kStep) {
            const Vec<double> part = exp_vector<double>(load(&probabilities_[v]) - most);
            for (size_t i = 0; i < kStep; ++i) sum += part[i];
        }
        return most + std::log(sum);
    }

    // The most probable tokens by top_k and top_p, of these those that min_p and typical_p leave.
    void restrict_tokens(size_t V, const abi::SampleCall<void>& choice) {
        const bool by_probability = (choice.top_k > 0 && static_cast<size_t>(choice.top_k) < V) || choice.top_p < 1;
        if (!by_probability && choice.min_p <= 0 && choice.typical_p >= 1) return;
        left_.clear();
        for (size_t v = 0; v < V; ++v)
            if (probabilities_[v] > 0) left_.push_back(v);
        if (by_probability) {
            const size_t most = choice.top_k > 0 ? static_cast<size_t>(choice.top_k) : V;
            keep_first(most, choice.top_p, [this](size_t a, size_t b) {
                return probabilities_[a] > probabilities_[b] || (probabilities_[a] == probabilities_[b] && a < b);
            });
        }
        if (choice.min_p > 0) {
            double most = 0;
            for (size_t v : left_) most = std::max(most, probabilities_[v]);
            const auto stays = [&](size_t v) { return probabilities_[v] >= choice.min_p * most; };
            const auto first = std::stable_partition(left_.begin(), left_.end(), stays);
            for (auto v = first; v != left_.end(); ++v) probabilities_[*v] = 0;
            left_.erase(first, left_.end());
        }
        if (choice.typical_p < 1) keep_typical(V, choice.typical_p);
    }

    // The tokens whose surprisal is closest to the entropy.
    void keep_typical(size_t V, double mass) {
        const double total = left_total();
        double entropy = 0;
        distances_.resize(V);
        for (size_t v : left_) {
            const double probability = probabilities_[v] / total;
            distances_[v] = -std::log(probability);
            entropy += probability * distances_[v];
        }
        for (size_t v : left_) distances_[v] = std::abs(distances_[v] - entropy);
        keep_first(V, mass, [this](size_t a, size_t b) {
            return distances_[a] < distances_[b] || (distances_[a] == distances_[b] && a < b);
        });
    }

    double left_total() const {
        double total = 0;
        for (size_t v : left_) total += probabilities_[v];
        return total;
    }

    // Of the tokens that are left the `most` first ones, and of these the fewest that reach a share of their
    // probability. Sorts only as far as needed: usually few tokens of a large vocabulary are kept.
    template <typename Before>
    void keep_first(size_t most, double mass, const Before& before) {
        most = std::min(most, left_.size());
        const auto place = [&](size_t n) { return left_.begin() + static_cast<std::ptrdiff_t>(n); };
        size_t sorted = 0;
        const auto sort_to = [&](size_t n) {
            if (n < left_.size()) std::nth_element(place(sorted), place(n - 1), left_.end(), before);
            std::sort(place(sorted), place(n), before);
            sorted = n;
        };
        const size_t all = left_.size();
        if (most < all && most > 0) sort_to(most);
        double total = 0, sum = 0;
        for (size_t i = 0; i < most; ++i) total += probabilities_[left_[i]];
        size_t kept = 0;
        for (; kept < most && sum < mass * total; ++kept) {
            if (kept == sorted) sort_to(std::min(all, std::max<size_t>(64, 4 * sorted)));
            sum += probabilities_[left_[kept]];
        }
        for (size_t i = kept; i < all; ++i) probabilities_[left_[i]] = 0;
        left_.resize(kept);
    }

    std::vector<double> probabilities_, distances_;
    std::vector<size_t> left_;
};

}  // namespace weft
