// What Python hands over: chains of places, each place with a row of scores, one score a state.
//
// Twice: as logarithms, and as numbers relative to the largest of their row, whose rows are filled up with zeros to a
// multiple of eight. The numbers are what the fast loops read, a vector at a time, the logarithms what the exact ones do.
#pragma once

#include <cstdint>

#include "../../engine/core/vector.hpp"

namespace weft::chain {

constexpr int64_t kLanes = kWidth<double>;
typedef double Block __attribute__((vector_size(kLanes * 8), aligned(kLanes * 8), may_alias));
typedef int64_t Bits __attribute__((vector_size(kLanes * 8), aligned(kLanes * 8), may_alias));

constexpr int64_t kRow = 8;                  // rows of numbers are multiples of it
constexpr int64_t kBlocks = kRow / kLanes;   // blocks in that
constexpr int64_t kMostStates = 512;

struct Problem {
    int64_t rows, states, threads;
    const int64_t* begins;   // (B) first place of each chain
    const int64_t* lengths;  // (B)
    const int64_t* ids;      // (P) the row of the table at each place
    const double *start, *transition, *end, *table;  // logarithms: (K), (K, K) from-to, (K), (N, K)
    // Numbers; the transition also the other way round, to-from.
    const Block *start_number, *transition_number, *transposed_number, *end_number, *table_number;
    const double* table_peaks;  // (N) the logarithm that the number 1 stands for in each row
    double peaks;               // the same for start and end together
    double transition_peak;
    const double* weights;      // (B) what each chain counts for in the sums, or nullptr
    int64_t table_rows;         // N
    int64_t rows_are_shared;    // 0 where no two places have the same row of the table

    int64_t wide() const { return (states + kRow - 1) / kRow; }
    int64_t blocks() const { return wide() * kBlocks; }
    double weight(int64_t row) const { return weights ? weights[row] : 1.0; }
};

// What is wanted: pointers that are nullptr are not.
struct Results {
    double* log_z;      // (B)
    int64_t* dead;      // (B) the place in the chain after which nothing is possible any more, or -1
    double* posterior;  // (P, K)
    double* cavity;     // (P, K) the same without the place's own score
    double *first, *pairs, *last, *table;  // weighted sums: (K), (K, K), (K), (N, K)
};

inline double at(const Block* row, int64_t k) { return reinterpret_cast<const double*>(row)[k]; }

// The sum of all lanes, in every lane: halves on halves.
inline Block total_of(Block x) { return total<double>(x); }
inline Block all(double value) { return value - Block{}; }

}  // namespace weft::chain
