// What Python hands over: chains of places, each place with a row of scores, one score a state.
//
// Twice: as logarithms, and as numbers relative to the largest of their row, whose rows are filled up with zeros to a
// multiple of eight. The numbers are what the fast loops read, a vector at a time, the logarithms what the exact ones
// do.
#pragma once

#include <cstdint>

#include "../../engine/core/abi.hpp"
#include "../../engine/core/vector.hpp"

namespace weft::chain {

constexpr int64_t kLanes = kWidth<double>;
typedef double Block __attribute__((vector_size(kLanes * 8), aligned(kLanes * 8), may_alias));
typedef int64_t Bits __attribute__((vector_size(kLanes * 8), aligned(kLanes * 8), may_alias));

constexpr int64_t kRow = 8;                 // rows of numbers are multiples of it
constexpr int64_t kBlocks = kRow / kLanes;  // blocks in that
constexpr int64_t kMostStates = 512;

// The call's record, with its scaled scores as blocks of lanes.
struct Problem : abi::ChainProblem<double> {
    int64_t wide() const { return (states + kRow - 1) / kRow; }
    int64_t blocks() const { return wide() * kBlocks; }
    double weight(int64_t row) const { return weights ? weights[row] : 1.0; }
    const Block* start_number() const { return reinterpret_cast<const Block*>(start_scaled); }
    const Block* transition_number() const { return reinterpret_cast<const Block*>(transition_scaled); }
    const Block* transposed_number() const { return reinterpret_cast<const Block*>(transposed_scaled); }
    const Block* end_number() const { return reinterpret_cast<const Block*>(end_scaled); }
    const Block* table_number() const { return reinterpret_cast<const Block*>(table_scaled); }
};
using Results = abi::ChainResults<double>;

inline double at(const Block* row, int64_t k) { return reinterpret_cast<const double*>(row)[k]; }

// The sum of all lanes, in every lane: halves on halves.
inline Block total_of(Block x) { return total<double>(x); }
inline Block all(double value) { return value - Block{}; }

}  // namespace weft::chain
