// One step of an optimizer over all parameters of a model, which reads and writes each element once.
#pragma once

#include <cmath>

#include "abi.hpp"
#include "threads.hpp"
#include "vector.hpp"

namespace weft {

constexpr int64_t kPiece = 16384;  // elements; sums are over pieces, so that they do not depend on the threads

template <typename T>
class ParameterPieces {
  public:
    ParameterPieces(const void* states, int64_t count) : states_(static_cast<const abi::ParameterState<T>*>(states)) {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t start = 0; start < states_[i].size; start += kPiece) pieces_.push_back({i, start});
    }
    int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }

    // Calls work(index of the piece, index of its parameter, the part of the parameter's tensors).
    template <typename Work>
    void each(int64_t threads, const Work& work) const {
        parallel(pieces(), pieces() < 4 ? 1 : threads, [&](int64_t i) {
            const auto [number, start] = pieces_[static_cast<size_t>(i)];
            const abi::ParameterState<T>& whole = states_[number];
            auto cut = [start = start](auto* from) { return from ? from + start : from; };
            work(i, number,
                 abi::ParameterState<T>{std::min(kPiece, whole.size - start), whole.weight + start,
                                        whole.gradient + start, cut(whole.exp_avg), cut(whole.exp_avg_sq),
                                        cut(whole.ema)});
        });
    }

  private:
    struct Piece {
        int64_t number, start;
    };
    const abi::ParameterState<T>* states_;
    std::vector<Piece> pieces_;
};

// The L2 norm of all gradients as one vector.
template <typename T>
Status gradient_norm(const abi::NormCall<T>& call) {
    const ParameterPieces<T> pieces(call.states, call.parameters);
    std::vector<double> squares(static_cast<size_t>(pieces.pieces()));
    pieces.each(call.threads, [&](int64_t number, int64_t, const abi::ParameterState<T>& piece) {
        constexpr int W = kWidth<T>;
        Vec<T> sums[4] = {};
        int64_t i = 0;
        for (; i + 4 * W <= piece.size; i += 4 * W)
            for (int n = 0; n < 4; ++n) {
                const Vec<T> g = load(piece.gradient + i + n * W);
                sums[n] += g * g;
            }
        double sum = 0;
        for (; i < piece.size; ++i)
            sum += static_cast<double>(piece.gradient[i]) * static_cast<double>(piece.gradient[i]);
        const Vec<T> whole = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int lane = 0; lane < W; ++lane) sum += static_cast<double>(whole[lane]);
        squares[static_cast<size_t>(number)] = sum;
    });
    double sum = 0;
    for (double square : squares) sum += square;
    *call.norm = std::sqrt(sum);
    return Status::ok;
}

// The hyperparameters of a step, which all parameters share.
template <typename T>
struct Hyperparameters {
    T gradient_scale, weight_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
};

// Separate loops over memory that does not overlap, which the compiler vectorizes.
template <typename T>
void adam(int64_t count, const Hyperparameters<T>& h, T size, T root, const T* __restrict gradient,
          T* __restrict exp_avg, T* __restrict exp_avg_sq, T* __restrict weight) {
    for (int64_t i = 0; i < count; ++i) {
        const T g = gradient[i] * h.gradient_scale, m = h.beta1 * exp_avg[i] + h.one_minus_beta1 * g;
        const T s = h.beta2 * exp_avg_sq[i] + h.one_minus_beta2 * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = s;
        weight[i] = weight[i] * h.weight_scale - size * m / (std::sqrt(s) * root + h.eps);
    }
}

template <typename T>
void momentum(int64_t count, const Hyperparameters<T>& h, T size, const T* __restrict gradient, T* __restrict buffer,
              T* __restrict weight) {
    for (int64_t i = 0; i < count; ++i) {
        buffer[i] = h.beta1 * buffer[i] + gradient[i] * h.gradient_scale;
        weight[i] = weight[i] * h.weight_scale - size * buffer[i];
    }
}

template <typename T>
void descend(int64_t count, const Hyperparameters<T>& h, T size, const T* __restrict gradient, T* __restrict weight) {
    for (int64_t i = 0; i < count; ++i)
        weight[i] = weight[i] * h.weight_scale - size * (gradient[i] * h.gradient_scale);
}

template <typename T>
void average(int64_t count, T one_minus_decay, const T* __restrict weight, T* __restrict ema) {
    for (int64_t i = 0; i < count; ++i) ema[i] += one_minus_decay * (weight[i] - ema[i]);
}

template <typename T>
Status optimizer_step(const abi::OptimizerCall<T>& call) {
    auto value = [](double given) { return static_cast<T>(given); };
    const Hyperparameters<T> h{
        value(call.gradient_scale), value(call.weight_scale), value(call.beta1), value(1 - call.beta1),
        value(call.beta2),          value(1 - call.beta2),    value(call.eps)};
    const T one_minus_decay = value(1 - call.ema_decay);
    const auto* sizes = static_cast<const abi::StepSize<T>*>(call.sizes);
    ParameterPieces<T>(call.states, call.parameters)
        .each(call.threads, [&](int64_t, int64_t number, const abi::ParameterState<T>& piece) {
            const T size = value(sizes[number].size), root = value(1 / sizes[number].bias_correction);
            if (piece.exp_avg_sq)
                adam(piece.size, h, size, root, piece.gradient, piece.exp_avg, piece.exp_avg_sq, piece.weight);
            else if (piece.exp_avg)
                momentum(piece.size, h, size, piece.gradient, piece.exp_avg, piece.weight);
            else
                descend(piece.size, h, size, piece.gradient, piece.weight);
            if (piece.ema) average(piece.size, one_minus_decay, piece.weight, piece.ema);
        });
    return Status::ok;
}

}  // namespace weft
