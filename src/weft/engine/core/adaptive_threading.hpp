// Adaptive threading: chooses serial or parallel execution by measured time.
//
// Whether a second thread speeds up a few microseconds of work depends on what cannot be known here: whether it is
// awake, and what else runs on its core. So both modes are timed, and the mode that is not in use is tried now and
// then. One suspension of a thread costs more than hundreds of parallel steps gain, and a few trials seldom show it. So
// the time lost and gained in parallel mode is accumulated; once too much is lost, execution is serial for a while,
// longer each time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace weft {

class AdaptiveThreading {
  public:
    // Runs work(in_parallel), which does `units` of the same work, in the mode that was faster recently.
    template <typename Work>
    void run(int64_t units, const Work& work) {
        const int64_t trial = std::max(kTrial, 4 * units);
        const bool trying = serial_ > 0 && left_ <= 0, in_parallel = is_parallel_ != trying;
        const auto begin = std::chrono::steady_clock::now();
        work(in_parallel);
        const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const bool waking = trying && in_parallel && 8 * tried_ < 3 * trial;  // the first runs wake sleeping threads
        if (!waking) average(in_parallel ? parallel_ : serial_, taken / static_cast<double>(units));
        if (in_parallel) lost_ = std::max(-kSavings * serial_, lost_ + taken - serial_ * static_cast<double>(units));
        (trying ? tried_ : left_) += trying ? units : -units;
        if (lost_ > kPatience * serial_) {
            go_serial();
        } else if (trying && tried_ >= trial) {
            if (parallel_ > 0.95 * serial_) return go_serial();
            if (is_parallel_) pause_ = kOften;  // it has been faster for long
            is_parallel_ = true;
            restart(kLong);
        }
    }

  private:
    // Units of work: of a trial, and of serial mode before the next one, at first and at most (kOften, kSeldom); of
    // parallel mode, where a trial is cheap, always kLong.
    static constexpr int64_t kTrial = 16, kOften = 256, kLong = 1 << 13, kSeldom = 1 << 16;
    static constexpr double kPatience = 64,
                            kSavings = 512;  // in units of serial time: what may be lost, and how much of gains counts

    static void average(double& so_far, double taken) {
        so_far = so_far ? so_far + (std::min(taken, 2 * so_far) - so_far) / 8 : taken;
    }

    void go_serial() {
        is_parallel_ = false;
        restart(pause_);
        pause_ = std::min(2 * pause_, kSeldom);
        parallel_ = 0;
    }

    void restart(int64_t units) {
        left_ = units;
        tried_ = 0;
        lost_ = 0;
    }

    bool is_parallel_ = false;
    int64_t left_ = kTrial, tried_ = 0, pause_ = kOften;  // units until the next trial; of this trial; of serial mode
    double serial_ = 0, parallel_ = 0;  // seconds a unit: moving averages, each sample at most twice the average
    double lost_ = 0;                   // seconds lost in parallel mode; negative: gained
};

}  // namespace weft
