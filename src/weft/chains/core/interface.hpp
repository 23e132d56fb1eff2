// The C interface of the chains, part of the engine's library: records of abi.hpp in, a Status out.
//
// Chains are divided into slices. Each slice has its own sums, which are added in order, so that results do not depend
// on the scheduling of threads.
#pragma once

#include <algorithm>
#include <new>
#include <vector>

#include "../../engine/core/interface.hpp"
#include "scaled.hpp"
#include "viterbi.hpp"

namespace weft::chain {

constexpr int64_t kSlices = 8,
                  kLeast = 128;  // the maximal number of slices, and the minimal number of positions in a slice

struct Slice {
    int64_t begin, end;
};

inline std::vector<Slice> slices_of(const Problem& problem) {
    int64_t total = 0;
    for (int64_t b = 0; b < problem.rows; ++b) total += problem.lengths[b];
    const int64_t count = std::max<int64_t>(1, std::min({problem.rows, kSlices, total / kLeast}));
    std::vector<Slice> slices;
    int64_t row = 0, places = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t begin = row;
        for (; row < problem.rows && (places < total * (i + 1) / count || i + 1 == count); ++row)
            places += problem.lengths[row];
        slices.push_back({begin, row});
    }
    return slices;
}

// Whether every chain lies within the positions, and every position of a chain names a row of the table.
inline Status check(const Problem& problem) {
    for (int64_t b = 0; b < problem.rows; ++b) {
        const int64_t begin = problem.begins[b], length = problem.lengths[b];
        if (begin < 0 || length < 0 || begin > problem.positions - length) return Status::length_out_of_range;
        for (int64_t t = begin; t < begin + length; ++t)
            if (problem.ids[t] < 0 || problem.ids[t] >= problem.table_rows) return Status::id_out_of_range;
    }
    return Status::ok;
}

inline int64_t longest(const Problem& problem, Slice slice) {
    int64_t most = 0;
    for (int64_t b = slice.begin; b < slice.end; ++b) most = std::max(most, problem.lengths[b]);
    return most;
}

template <int N>
void sum_slice(const Problem& problem, Slice slice, const Results& out, const Results& sums) {
    const bool backward = out.posterior || out.cavity || sums.pairs;
    Workspace space;
    Block* blocks = static_cast<Block*>(space.bytes(
        static_cast<size_t>(Scaled<N>::space(problem, backward ? longest(problem, slice) : 1)) * sizeof(Block)));
    Scaled<N> scaled(problem, blocks, out, sums);
    for (int64_t row = slice.begin; row < slice.end; ++row) {
        if (problem.lengths[row] == 0) {
            out.log_z[row] = 0;
            out.dead[row] = -1;
        } else if (!scaled.run(row)) {
            log_space_row(problem, row, out, sums);
        }
        if (out.dead[row] >= 0)
            for (double* shares : {out.posterior, out.cavity})
                if (shares)
                    std::fill_n(shares + problem.begins[row] * problem.states, problem.lengths[row] * problem.states,
                                0.0);
    }
}

inline void sum_all(const Problem& problem, const Results& out) {
    const std::vector<Slice> slices = slices_of(problem);
    const int64_t K = problem.states, table = out.table && problem.rows_are_shared ? problem.table_rows * K : 0;
    const int64_t size = out.pairs ? K + K * K + K + table : 0;
    std::vector<std::vector<double>> parts(slices.size(), std::vector<double>(static_cast<size_t>(size)));
    parallel(static_cast<int64_t>(slices.size()), problem.threads, [&](int64_t i) {
        Results sums = {};
        if (size) {
            sums.first = parts[static_cast<size_t>(i)].data();
            sums.pairs = sums.first + K;
            sums.last = sums.pairs + K * K;
            sums.table = table ? sums.last + K : out.table;
        }
        const Slice slice = slices[static_cast<size_t>(i)];
        switch (problem.wide()) {
            case 1: return sum_slice<1 * kBlocks>(problem, slice, out, sums);
            case 2: return sum_slice<2 * kBlocks>(problem, slice, out, sums);
            case 3: return sum_slice<3 * kBlocks>(problem, slice, out, sums);
            case 4: return sum_slice<4 * kBlocks>(problem, slice, out, sums);
            default: return sum_slice<0>(problem, slice, out, sums);
        }
    });
    for (const std::vector<double>& part : parts) {
        const double* from = part.data();
        for (auto [to, count] : {std::pair{out.first, K}, {out.pairs, K * K}, {out.last, K}, {out.table, table}})
            for (int64_t k = 0; size && k < count; ++k) to[k] += *from++;
    }
}

template <int N>
void viterbi_slice(const Problem& problem, const Block* scores, Slice slice, int64_t* states, double* score) {
    std::vector<int32_t> choices(static_cast<size_t>(longest(problem, slice) * problem.states));
    for (int64_t row = slice.begin; row < slice.end; ++row) {
        if (problem.lengths[row] == 0)
            score[row] = 0;
        else
            viterbi_row<N>(problem, scores, row, choices.data(), states, score + row);
    }
}

inline void viterbi_all(const Problem& problem, const abi::ViterbiResults<double>& out) {
    const auto* scores = reinterpret_cast<const Block*>(out.transition_padded);
    const std::vector<Slice> slices = slices_of(problem);
    parallel(static_cast<int64_t>(slices.size()), problem.threads, [&](int64_t i) {
        const Slice slice = slices[static_cast<size_t>(i)];
        switch (problem.wide()) {
            case 1: return viterbi_slice<1 * kBlocks>(problem, scores, slice, out.states, out.score);
            case 2: return viterbi_slice<2 * kBlocks>(problem, scores, slice, out.states, out.score);
            case 3: return viterbi_slice<3 * kBlocks>(problem, scores, slice, out.states, out.score);
            case 4: return viterbi_slice<4 * kBlocks>(problem, scores, slice, out.states, out.score);
            default: return viterbi_slice<0>(problem, scores, slice, out.states, out.score);
        }
    });
}

// ChainProblem, ChainResults.
WEFT_EXPORT int weft_chain_sum(const void* data) {
    return guarded([&] {
        abi::Reader reader(data);
        const Problem problem{reader.take<abi::ChainProblem<double>>()};
        const Status status = check(problem);
        if (status == Status::ok) sum_all(problem, reader.take<Results>());
        return status;
    });
}

// ChainProblem, ViterbiResults.
WEFT_EXPORT int weft_chain_viterbi(const void* data) {
    return guarded([&] {
        abi::Reader reader(data);
        const Problem problem{reader.take<abi::ChainProblem<double>>()};
        const Status status = check(problem);
        if (status == Status::ok) viterbi_all(problem, reader.take<abi::ViterbiResults<double>>());
        return status;
    });
}

}  // namespace weft::chain
