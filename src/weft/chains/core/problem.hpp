// The problem of one call: chains of positions, each position with a row of scores, one for each state.
//
// Scores are given twice: as logarithms, which the log-space recursions read, and relative to the maximum of their row,
// in rows padded with zeros to a multiple of eight, which the scaled recursions read a vector at a time.
#pragma once

#include <cstdint>

#include "../../engine/core/abi.hpp"
#include "../../engine/core/vector.hpp"

namespace weft::chain {

constexpr int64_t kLanes = kWidth<double>;
typedef double Block __attribute__((vector_size(kLanes * 8), aligned(kLanes * 8), may_alias));
typedef int64_t Bits __attribute__((vector_size(kLanes * 8), aligned(kLanes * 8), may_alias));

constexpr int64_t kRow = 8;                 // rows of scaled scores are padded to a multiple of it
constexpr int64_t kBlocks = kRow / kLanes;  // blocks in so many scores
constexpr int64_t kMostStates = 512;

// The call's record, with its scaled scores as blocks of lanes.
struct Problem : abi::ChainProblem<double> {
    int64_t wide() const { return (states + kRow - 1) / kRow; }
    int64_t blocks() const { return wide() * kBlocks; }
    double weight(int64_t row) const { return weights ? weights[row] : 1.0; }
    const Block* start_blocks() const { return reinterpret_cast<const Block*>(start_scaled); }
    const Block* transition_blocks() const { return reinterpret_cast<const Block*>(transition_scaled); }
    const Block* transposed_blocks() const { return reinterpret_cast<const Block*>(transposed_scaled); }
    const Block* end_blocks() const { return reinterpret_cast<const Block*>(end_scaled); }
    const Block* table_blocks() const { return reinterpret_cast<const Block*>(table_scaled); }
};
using Results = abi::ChainResults<double>;

inline double at(const Block* row, int64_t k) { return reinterpret_cast<const double*>(row)[k]; }

// The sum of all lanes, in every lane.
inline Block total_of(Block x) { return total<double>(x); }
inline Block all(double value) { return value - Block{}; }

}  // namespace weft::chain
