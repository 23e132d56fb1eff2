// One step of an optimizer over all tensors of a model, each number read and written once.
#pragma once

#include <cmath>

#include "threads.hpp"
#include "vector.hpp"

namespace weft {

template <typename T>
struct Update {
    int64_t size;
    T* weights;
    const T* gradient;
    T *mean, *square;  // of the gradient: without a square it is a momentum; without either the gradient counts alone
    T* average;        // of the weights over time, or nullptr
};

constexpr int64_t kPiece = 16384;  // numbers; sums are made of pieces, so that they do not depend on the threads

template <typename T>
class Updates {
  public:
    Updates(const int64_t* data, int64_t count) {
        for (int64_t i = 0; i < count; ++i, data += 6) {
            auto pointer = [&](int n) { return reinterpret_cast<T*>(data[n]); };
            updates_.push_back({data[0], pointer(1), pointer(2), pointer(3), pointer(4), pointer(5)});
            for (int64_t start = 0; start < data[0]; start += kPiece) pieces_.push_back({i, start});
        }
    }
    int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }

    // work(number of the piece, of its tensor, the tensor cut to the piece)
    template <typename Work>
    void each(int64_t threads, const Work& work) const {
        parallel(pieces(), pieces() < 4 ? 1 : threads, [&](int64_t i) {
            const auto [number, start] = pieces_[static_cast<size_t>(i)];
            const Update<T>& whole = updates_[static_cast<size_t>(number)];
            auto cut = [start = start](auto* from) { return from ? from + start : from; };
            work(i, number, Update<T>{std::min(kPiece, whole.size - start), whole.weights + start, whole.gradient + start,
                                      cut(whole.mean), cut(whole.square), cut(whole.average)});
        });
    }

  private:
    struct Piece {
        int64_t number, start;
    };
    std::vector<Update<T>> updates_;
    std::vector<Piece> pieces_;
};

// The length of all gradients as one vector.
template <typename T>
double norm(const int64_t* data, int64_t count, int64_t threads) {
    const Updates<T> updates(data, count);
    std::vector<double> squares(static_cast<size_t>(updates.pieces()));
    updates.each(threads, [&](int64_t number, int64_t, const Update<T>& piece) {
        constexpr int W = kWidth<T>;
        Vec<T> sums[4] = {};
        int64_t i = 0;
        for (; i + 4 * W <= piece.size; i += 4 * W)
            for (int n = 0; n < 4; ++n) {
                const Vec<T> g = load(piece.gradient + i + n * W);
                sums[n] += g * g;
            }
        double sum = 0;
        for (; i < piece.size; ++i) sum += static_cast<double>(piece.gradient[i]) * static_cast<double>(piece.gradient[i]);
        const Vec<T> whole = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int lane = 0; lane < W; ++lane) sum += static_cast<double>(whole[lane]);
        squares[static_cast<size_t>(number)] = sum;
    });
    double sum = 0;
    for (double square : squares) sum += square;
    return std::sqrt(sum);
}

// Numbers that all tensors of a step have in common.
template <typename T>
struct Rates {
    T scale, decay, mean_stays, mean_comes, square_stays, square_comes, small, average_comes;
};

// Loops of their own over memory that does not overlap: so the compiler makes vectors of them.
template <typename T>
void move_by_squares(int64_t count, const Rates<T>& r, T size, T root, const T* __restrict gradient, T* __restrict mean,
                     T* __restrict square, T* __restrict weights) {
    for (int64_t i = 0; i < count; ++i) {
        const T g = gradient[i] * r.scale, m = r.mean_stays * mean[i] + r.mean_comes * g;
        const T s = r.square_stays * square[i] + r.square_comes * g * g;
        mean[i] = m;
        square[i] = s;
        weights[i] = weights[i] * r.decay - size * m / (std::sqrt(s) * root + r.small);
    }
}

template <typename T>
void move_by_mean(int64_t count, const Rates<T>& r, T size, const T* __restrict gradient, T* __restrict mean, T* __restrict weights) {
    for (int64_t i = 0; i < count; ++i) {
        mean[i] = r.mean_stays * mean[i] + gradient[i] * r.scale;
        weights[i] = weights[i] * r.decay - size * mean[i];
    }
}

template <typename T>
void move(int64_t count, const Rates<T>& r, T size, const T* __restrict gradient, T* __restrict weights) {
    for (int64_t i = 0; i < count; ++i) weights[i] = weights[i] * r.decay - size * (gradient[i] * r.scale);
}

template <typename T>
void follow(int64_t count, T comes, const T* __restrict weights, T* __restrict average) {
    for (int64_t i = 0; i < count; ++i) average[i] += comes * (weights[i] - average[i]);
}

// rates: for all, the factor of the gradients, that of the weights (1 - rate * decay), how much of the means and of the
// squares stays, what keeps a division from zero, how much of the weights' average stays; then for each tensor the size
// of a step and, for squares, the root of their correction.
template <typename T>
void update(const int64_t* data, const double* rates, int64_t count, int64_t threads) {
    auto number = [&](double value) { return static_cast<T>(value); };
    const Rates<T> r{number(rates[0]), number(rates[1]),     number(rates[2]), number(1 - rates[2]),
                     number(rates[3]), number(1 - rates[3]), number(rates[4]), number(1 - rates[5])};
    Updates<T>(data, count).each(threads, [&](int64_t, int64_t tensor, const Update<T>& piece) {
        const T size = number(rates[6 + 2 * tensor]), root = number(1 / rates[7 + 2 * tensor]);
        if (piece.square)
            move_by_squares(piece.size, r, size, root, piece.gradient, piece.mean, piece.square, piece.weights);
        else if (piece.mean)
            move_by_mean(piece.size, r, size, piece.gradient, piece.mean, piece.weights);
        else
            move(piece.size, r, size, piece.gradient, piece.weights);
        if (piece.average) follow(piece.size, r.average_comes, piece.weights, piece.average);
    });
}

}  // namespace weft
