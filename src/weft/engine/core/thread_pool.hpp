// A thread pool for many short parallel loops.
//
// The product of one row with a weight takes microseconds, less than it takes to wake a thread. Helpers therefore spin
// for as long as run() lasts and pick up each loop as it comes. The leader does not wait for a helper that the system
// has suspended before it took a piece: it takes the remaining pieces itself. Each thread begins with the same part of
// the pieces every time, so that its part of a weight stays in its cache.
#pragma once

#include <memory>
#include <utility>

#include "threads.hpp"

namespace weft {

class ThreadPool {
  public:
    ThreadPool() = default;
    explicit ThreadPool(uint64_t turn) : turn_(turn) {}  // starts counting at `turn`: for tests of the overflow

    // Runs lead(). During it, parallel_for() uses up to `threads` threads.
    template <typename Lead>
    void run(int64_t threads, const Lead& lead) {
        if (threads <= 1) return lead();
        if (size_ != threads) parts_ = std::make_unique<Part[]>(static_cast<size_t>(threads));
        size_ = threads;
        over_ = false;
        const uint64_t before = turn_;
        struct Closing {  // releases the helpers, also when lead() throws
            ThreadPool& pool;
            ~Closing() {
                pool.active_ = 1;
                pool.over_ = true;
            }
        };
        active_ = threads;
        parallel(threads, threads, [&](int64_t i) {
            if (i) return help(i, before);
            Closing closing{*this};
            lead();
        });
    }

    bool is_alone() const { return active_ == 1; }

    // Covers 0..count-1 by calls of work(first, last): one call if there is one thread, else one call for each index.
    template <typename Work>
    void parallel_for(int64_t count, const Work& work) {
        if (active_ == 1 || count <= 1) return work(0, count);
        const uint64_t turn = turn_ + 1;
        // The order matters: a helper that is late for the last turn and sees parts of this one must find nothing to
        // take.
        for (int64_t i = 0; i < size_; ++i) parts_[static_cast<size_t>(i)].next = turn << 32;
        done_ = 0;
        count_ = count;
        data_ = const_cast<void*>(static_cast<const void*>(&work));
        call_ = [](void* data, int64_t i) { (*static_cast<const Work*>(data))(i, i + 1); };
        turn_ = turn;
        take(0, turn);
        for (int spins = 0; done_ != count; ++spins) relax(spins);
        if (threw_.exchange(false)) std::rethrow_exception(std::exchange(thrown_, nullptr));
    }

  private:
    struct alignas(64) Part {
        std::atomic<uint64_t> next{0};  // high half: the low half of the turn; low half: how many pieces are taken
    };

    void help(int64_t me, uint64_t seen) {
        for (int spins = 0; !over_; ++spins) {
            const uint64_t turn = turn_;
            if (turn != seen) {
                take(me, seen = turn);
                spins = 0;
            }
            relax(spins);
        }
    }

    // Takes pieces of its own part first, then of the other parts.
    void take(int64_t me, uint64_t turn) {
        void (*const call)(void*, int64_t) = call_;
        void* const data = data_;
        const int64_t count = count_;
        const uint64_t tag = turn & 0xffffffff;  // `next` has room for these bits
        for (int64_t n = 0; n < size_; ++n) {
            const int64_t whose = (me + n) % size_;
            const int64_t first = count * whose / size_, last = count * (whose + 1) / size_;
            std::atomic<uint64_t>& next = parts_[static_cast<size_t>(whose)].next;
            for (uint64_t now = next; now >> 32 == tag;) {
                const int64_t piece = first + static_cast<int64_t>(now & 0xffffffff);
                if (piece >= last) break;
                if (!next.compare_exchange_weak(now, now + 1)) continue;
                try {
                    call(data, piece);
                } catch (...) {  // parallel_for() rethrows it when no thread works on its pieces
                    if (!threw_.exchange(true)) thrown_ = std::current_exception();
                }
                ++done_;
                now = next;
            }
        }
    }

    static void relax(int spins) {
        if (spins > 4000) return std::this_thread::yield();  // the threads may share a core
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    int64_t size_ = 1, active_ = 1;
    std::unique_ptr<Part[]> parts_;
    alignas(64) std::atomic<uint64_t> turn_{0};
    std::atomic<bool> over_{true};
    std::atomic<int64_t> count_{0};
    std::atomic<void*> data_{nullptr};
    std::atomic<void (*)(void*, int64_t)> call_{nullptr};
    std::atomic<bool> threw_{false};
    std::exception_ptr thrown_;  // the first exception of the turn
    alignas(64) std::atomic<int64_t> done_{0};
};

}  // namespace weft
