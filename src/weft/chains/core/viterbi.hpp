// The best path of one chain (Viterbi) in log space: sums and comparisons, a block of states at a time.
#pragma once

#include <vector>

#include "log_space.hpp"

namespace weft::chain {

// scores: (K, K) transitions in blocks, padded with -inf. choices: memory for (T, K) states. states: (P). score: one
// value.
template <int N>
void viterbi_row(const Problem& problem, const Block* scores, int64_t row, int32_t* choices, int64_t* states,
                 double* score) {
    constexpr int kMost = N ? N : kMostStates / kLanes;
    const int64_t K = problem.states, T = problem.lengths[row], nb = N ? N : problem.blocks();
    const int64_t* ids = problem.ids + problem.begins[row];
    Block now[kMost];
    for (int64_t n = 0; n < nb; ++n) now[n] = all(kNothing);
    double* s = reinterpret_cast<double*>(now);
    for (int64_t k = 0; k < K; ++k) s[k] = problem.start[k] + problem.table[ids[0] * K + k];
    for (int64_t t = 1; t < T; ++t) {
        Block best[kMost];
        Bits from[kMost];
        for (int64_t n = 0; n < nb; ++n) best[n] = all(kNothing), from[n] = Bits{};
        for (int64_t i = 0; i < K; ++i)
            for (int64_t n = 0; n < nb; ++n) {
                const Block candidate = s[i] + scores[i * nb + n];
                const Bits better = candidate > best[n];
                best[n] = better ? candidate : best[n];
                from[n] = better ? i - Bits{} : from[n];
            }
        const double* here = problem.table + ids[t] * K;
        for (int64_t k = 0; k < K; ++k) {
            s[k] = at(best, k) + here[k];
            choices[t * K + k] = static_cast<int32_t>(reinterpret_cast<const int64_t*>(from)[k]);
        }
    }
    double most = kNothing;
    int64_t state = -1;
    for (int64_t k = 0; k < K; ++k) {
        const double total = s[k] + problem.end[k];
        if (total > most) most = total, state = k;
    }
    *score = most;
    for (int64_t t = T - 1; t >= 0; --t) {
        states[problem.begins[row] + t] = state;
        if (state >= 0 && t > 0) state = choices[t * K + state];
    }
}

}  // namespace weft::chain
