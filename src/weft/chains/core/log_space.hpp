// The recursions of one chain in log space: slow, and accurate for all scores. Used where the scaled recursions
// (scaled.hpp) find a value that is too small to be trusted.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "problem.hpp"

namespace weft::chain {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

struct LogSum {  // log of a sum of exponentials, two passes over `term(k)`
    template <typename Term>
    static double over(int64_t count, const Term& term) {
        double most = kNothing;
        for (int64_t k = 0; k < count; ++k) {
            const double value = term(k);
            if (value > most || std::isnan(value)) most = value;
        }
        if (most == kNothing || std::isnan(most)) return most;
        double total = 0;
        for (int64_t k = 0; k < count; ++k) total += std::exp(term(k) - most);
        return most + std::log(total);
    }
};

inline void log_space_row(const Problem& problem, int64_t row, const Results& out, Results sums) {
    const int64_t K = problem.states, T = problem.lengths[row], *ids = problem.ids + problem.begins[row];
    const double* A = problem.transition;
    auto score = [&](int64_t t, int64_t k) { return problem.table[ids[t] * K + k]; };
    const bool backward = out.posterior || out.cavity || sums.pairs;
    std::vector<double> pi(static_cast<size_t>((backward ? T : 1) * K)), before(static_cast<size_t>(K)),
        rho(problem.end, problem.end + K);
    auto at = [&](int64_t t) { return pi.data() + (backward ? t * K : 0); };  // before the score of position t

    out.dead[row] = -1;
    for (int64_t t = 0; t < T; ++t) {
        for (int64_t j = 0; j < K; ++j)
            at(t)[j] = t == 0 ? problem.start[j] : LogSum::over(K, [&](int64_t i) { return before[i] + A[i * K + j]; });
        bool alive = false;
        for (int64_t j = 0; j < K; ++j) {
            before[j] = at(t)[j] + score(t, j);
            alive |= !(before[j] == kNothing);
        }
        if (!alive) {
            out.log_z[row] = kNothing;
            out.dead[row] = t;
            return;
        }
    }
    const double log_z = LogSum::over(K, [&](int64_t k) { return before[k] + problem.end[k]; });
    out.log_z[row] = log_z;
    if (log_z == kNothing) out.dead[row] = T - 1;
    if (!backward || log_z == kNothing) return;

    const double weight = problem.weight(row);
    std::vector<double> here(static_cast<size_t>(K));  // score and rho of the position
    for (int64_t t = T - 1; t >= 0; --t) {
        const int64_t place = problem.begins[row] + t;
        for (int64_t k = 0; k < K; ++k) {
            here[k] = score(t, k) + rho[k];
            const double share = std::exp(at(t)[k] + here[k] - log_z);
            if (out.posterior) out.posterior[place * K + k] = share;
            if (sums.table) sums.table[ids[t] * K + k] += weight * share;
            if (sums.pairs && t == 0) sums.first[k] += weight * share;
            if (sums.pairs && t == T - 1) sums.last[k] += weight * share;
        }
        if (out.cavity) {
            const double log_sum = LogSum::over(K, [&](int64_t k) { return at(t)[k] + rho[k]; });
            for (int64_t k = 0; k < K; ++k) out.cavity[place * K + k] = std::exp(at(t)[k] + rho[k] - log_sum);
        }
        if (t == 0) break;
        for (int64_t i = 0; i < K; ++i) {
            rho[i] = LogSum::over(K, [&](int64_t j) { return A[i * K + j] + here[j]; });
            if (sums.pairs)
                for (int64_t j = 0; j < K; ++j)
                    sums.pairs[i * K + j] +=
                        weight * std::exp(at(t - 1)[i] + score(t - 1, i) + A[i * K + j] + here[j] - log_z);
        }
    }
}

}  // namespace weft::chain
