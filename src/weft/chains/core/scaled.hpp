// The recursions of one chain with scaled probabilities: at each position they are divided by their sum, so that
// products and sums are enough.
//
// A value that is far below the others may underflow, and later turn out to be the only one that counts. So every value
// below kTrusted is examined: either it is zero because no path leads there, or the chain is done in log space
// (log_space.hpp). A zero is therefore always one that the scores imply.
#pragma once

#include <cmath>
#include <cstring>

#include "log_space.hpp"

namespace weft::chain {

constexpr double kTrusted = 1e-100;  // its square does not underflow

// The logarithm of a product of many factors, taken only when it may overflow.
class LogProduct {
  public:
    void multiply(double factor) {
        product_ *= factor;
        if (product_ < 1e-100 || product_ > 1e100) flush();
    }
    double value() {
        flush();
        return sum_;
    }

  private:
    void flush() {
        sum_ += std::log(product_);
        product_ = 1;
    }
    double product_ = 1, sum_ = 0;
};

// N: the number of blocks of states, a constant for up to 32 states; 0: not known when compiled.
template <int N>
class Scaled {
  public:
    Scaled(const Problem& problem, Block* space, const Results& out, const Results& sums)
        : problem_(problem), out_(out), sums_(sums), space_(space) {
        const int64_t K = problem.states;
        for (int64_t n = 0; n < blocks(); ++n)
            for (int64_t lane = 0; lane < kLanes; ++lane) real_[n][lane] = n * kLanes + lane < K ? -1 : 0;
    }

    // How many blocks of memory a chain of `places` positions needs.
    static int64_t space(const Problem& problem, int64_t places) { return 3 * places * problem.blocks() + places; }

    // Returns false if values underflow; then nothing has been added to the sums.
    bool run(int64_t row) {
        const bool train = out_.posterior || out_.cavity || sums_.pairs;
        const int64_t T = problem_.lengths[row];
        ids_ = problem_.ids + problem_.begins[row];
        length_ = T;
        befores_ = space_;
        shares_ = befores_ + T * blocks();
        onwards_ = shares_ + T * blocks();
        scales_ = reinterpret_cast<double*>(onwards_ + T * blocks());
        if (!forward(row, train)) return false;
        if (!train || out_.dead[row] >= 0) return true;
        if (!backward(row)) return false;
        if (sums_.pairs) add(row);
        return true;
    }

  private:
    static constexpr int kMost = N ? N : kMostStates / kLanes;
    int64_t blocks() const { return N ? N : problem_.blocks(); }
    int64_t states() const { return problem_.states; }
    const Block* scores(int64_t t) const { return problem_.table_blocks() + ids_[t] * blocks(); }

    bool forward(int64_t row, bool keep) {
        const int64_t nb = blocks(), T = length_;
        Block before[kMost], p[kMost] = {};
        LogProduct scale;
        double peaks = problem_.start_end_peak;
        for (int64_t n = 0; n < nb; ++n) before[n] = problem_.start_blocks()[n];
        for (int64_t t = 0; t < T; ++t) {
            if (t > 0) {
                product(problem_.transition_blocks(), p, before);
                peaks += problem_.transition_peak;
            }
            const Block* e = scores(t);
            Block held[kMost], total = {};
            for (int64_t n = 0; n < nb; ++n) total += held[n] = before[n] * e[n];
            const Block all_c = total_of(total), factor = 1.0 / all_c;
            const double c = all_c[0];
            if (small(held, all_c) && !impossible(t, held, p, c)) return false;
            if (c == 0) return die(row, t);
            if (keep) {
                for (int64_t n = 0; n < nb; ++n) befores_[t * nb + n] = before[n];
                scales_[t] = factor[0];
            }
            for (int64_t n = 0; n < nb; ++n) p[n] = held[n] * factor;
            scale.multiply(c);
            peaks += problem_.table_peaks[ids_[t]];
        }
        Block total = {};
        for (int64_t n = 0; n < nb; ++n) total += p[n] * problem_.end_blocks()[n];
        const double last = total_of(total)[0];
        if (!(last > kTrusted)) return false;
        scale.multiply(last);
        out_.log_z[row] = scale.value() + peaks;
        out_.dead[row] = -1;
        return true;
    }

    bool backward(int64_t row) {
        const int64_t nb = blocks(), T = length_, K = states();
        Block q[kMost];
        for (int64_t n = 0; n < nb; ++n) q[n] = problem_.end_blocks()[n];
        for (int64_t t = T - 1; t >= 0; --t) {
            const Block *e = scores(t), *before = befores_ + t * nb;
            Block* share = shares_ + t * nb;
            Block w[kMost], total = {}, around = {};
            for (int64_t n = 0; n < nb; ++n) {
                w[n] = e[n] * q[n];
                total += share[n] = before[n] * w[n];
                around += before[n] * q[n];
            }
            const Block all_g = total_of(total), factor = 1.0 / all_g;
            if (!(all_g[0] * scales_[t] > kTrusted))
                return false;  // relative to the forward probabilities, which sum to one
            const int64_t place = problem_.begins[row] + t;
            for (int64_t n = 0; n < nb; ++n) share[n] *= factor;
            if (out_.posterior) std::memcpy(out_.posterior + place * K, share, static_cast<size_t>(K) * sizeof(double));
            if (out_.cavity) {
                const double h = total_of(around)[0];
                if (!(h > kTrusted)) return false;
                for (int64_t k = 0; k < K; ++k) out_.cavity[place * K + k] = at(before, k) * at(q, k) / h;
            }
            if (sums_.pairs)
                for (int64_t n = 0; n < nb; ++n) onwards_[t * nb + n] = w[n] * factor;
            if (t == 0) break;
            Block next[kMost], most = {};
            product(problem_.transposed_blocks(), w, next);
            for (int64_t n = 0; n < nb; ++n) most += next[n];
            const Block all_c = total_of(most), share_of = 1.0 / all_c;
            if (small(next, all_c) && !cut_off(t, next, q, all_c[0])) return false;
            for (int64_t n = 0; n < nb; ++n) q[n] = next[n] * share_of;
        }
        return true;
    }

    // Adds the expected counts of one chain to the sums.
    void add(int64_t row) {
        const int64_t nb = blocks(), T = length_, K = states();
        const double weight = problem_.weight(row);
        for (int64_t k = 0; k < K; ++k) {
            sums_.first[k] += weight * at(shares_, k);
            sums_.last[k] += weight * at(shares_ + (T - 1) * nb, k);
        }
        if (sums_.table)
            for (int64_t t = 0; t < T; ++t) {
                const double* share = reinterpret_cast<const double*>(shares_ + t * nb);
                double* to = sums_.table + ids_[t] * K;
                for (int64_t k = 0; k < K; ++k) to[k] += weight * share[k];
            }
        // From here on `befores_` holds the forward probabilities including the position's own score.
        for (int64_t t = 0; t + 1 < T; ++t)
            for (int64_t n = 0; n < nb; ++n) befores_[t * nb + n] *= scores(t)[n] * (weight * scales_[t]);
        constexpr int kRows = 4;  // a tile of sums that stays in registers
        constexpr int kWide = N == 0 ? 1 : N % 4 == 0 ? 4 : N % 3 == 0 ? 3 : N % 2 == 0 ? 2 : 1;
        for (int64_t i = 0; i < K; i += kRows)
            for (int64_t n = 0; n < nb; n += kWide) {
                Block sum_of[kRows][kWide] = {};
                for (int64_t t = 1; t < T; ++t) {
                    const double* p = reinterpret_cast<const double*>(befores_ + (t - 1) * nb) + i;
                    const Block* w = onwards_ + t * nb + n;
                    for (int r = 0; r < kRows; ++r)
                        for (int m = 0; m < kWide; ++m) sum_of[r][m] += p[r] * w[m];
                }
                for (int r = 0; r < kRows && i + r < K; ++r)
                    for (int m = 0; m < kWide; ++m) {
                        const Block a = problem_.transition_blocks()[(i + r) * nb + n + m] * sum_of[r][m];
                        for (int64_t lane = 0; lane < kLanes && (n + m) * kLanes + lane < K; ++lane)
                            sums_.pairs[(i + r) * K + (n + m) * kLanes + lane] += a[lane];
                    }
            }
    }

    // to = from matrix. Two independent sums hide half of the latency.
    void product(const Block* matrix, const Block* from, Block* to) const {
        const int64_t nb = blocks(), K = states();
        const double* p = reinterpret_cast<const double*>(from);
        Block even[kMost] = {}, odd[kMost] = {};
        int64_t i = 0;
        for (; i + 1 < K; i += 2)
            for (int64_t n = 0; n < nb; ++n) {
                even[n] += p[i] * matrix[i * nb + n];
                odd[n] += p[i + 1] * matrix[(i + 1) * nb + n];
            }
        for (int64_t n = 0; n < nb; ++n) to[n] = even[n] + odd[n];
        if (i < K)
            for (int64_t n = 0; n < nb; ++n) to[n] += p[i] * matrix[i * nb + n];
    }

    // Whether one of the values is too small to be trusted. `total`: their sum, in every lane.
    bool small(const Block* values, Block total) const {
        Bits found = ~(total > kTrusted);
        for (int64_t n = 0; n < blocks(); ++n) found |= ~(values[n] >= total * kTrusted) & real_[n];
        return any(found);
    }

    // Whether every small value at position t is one that no state before leads to, or that its own score forbids.
    bool impossible(int64_t t, const Block* held, const Block* before, double total) const {
        const int64_t K = states();
        for (int64_t j = 0; j < K; ++j) {
            if (at(held, j) >= total * kTrusted && total > kTrusted) continue;
            if (problem_.table[ids_[t] * K + j] == kNothing) continue;
            if (t == 0 && problem_.start[j] != kNothing) return false;
            for (int64_t i = 0; t > 0 && i < K; ++i)
                if (at(before, i) != 0 && problem_.transition[i * K + j] != kNothing) return false;
        }
        return true;
    }

    // Whether every small value before position t is one that leads to no possible state at t.
    bool cut_off(int64_t t, const Block* next, const Block* q, double total) const {
        const int64_t K = states();
        for (int64_t i = 0; i < K; ++i) {
            if (at(next, i) >= total * kTrusted && total > kTrusted) continue;
            for (int64_t j = 0; j < K; ++j) {
                const bool open = at(q, j) != 0 && problem_.table[ids_[t] * K + j] != kNothing;
                if (open && problem_.transition[i * K + j] != kNothing) return false;
            }
        }
        return true;
    }

    bool die(int64_t row, int64_t t) {
        out_.log_z[row] = kNothing;
        out_.dead[row] = t;
        return true;
    }

    const Problem& problem_;
    const Results& out_;
    const Results& sums_;
    Block* space_;
    Bits real_[kMost];
    const int64_t* ids_ = nullptr;
    int64_t length_ = 0;
    Block *befores_ = nullptr, *shares_ = nullptr, *onwards_ = nullptr;
    double* scales_ = nullptr;
};

}  // namespace weft::chain
