// What Python hands over: chains of places, each place with a row of scores, one score a state.
//
// Twice: as logarithms, and as numbers relative to the largest of their row, in blocks of eight states whose last one
// is filled up with zeros. The numbers are what the fast loops read, the logarithms what the exact ones do.
#pragma once

#include <cstdint>

namespace weft::chain {

typedef double Block __attribute__((vector_size(64), aligned(64), may_alias));
typedef int64_t Bits __attribute__((vector_size(64), aligned(64)));
constexpr int64_t kBlock = 8;

struct Problem {
    int64_t rows, states, threads;
    const int64_t* begins;   // (B) first place of each chain
    const int64_t* lengths;  // (B)
    const int64_t* ids;      // (P) the row of the table at each place
    const double *start, *transition, *end, *table;  // logarithms: (K), (K, K) from-to, (K), (N, K)
    // Numbers, in blocks; the transition also the other way round, to-from.
    const Block *start_number, *transition_number, *transposed_number, *end_number, *table_number;
    const double* table_peaks;  // (N) the logarithm that the number 1 stands for in each row
    double peaks;               // the same for start and end together
    double transition_peak;
    const double* weights;      // (B) what each chain counts for in the sums, or nullptr

    int64_t blocks() const { return (states + kBlock - 1) / kBlock; }
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

inline double sum(Block x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }
inline Block all(double value) { return value - Block{}; }
inline bool any(Bits x) { return (x[0] | x[1] | x[2] | x[3] | x[4] | x[5] | x[6] | x[7]) != 0; }

}  // namespace weft::chain
