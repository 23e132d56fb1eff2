// Threads that stay together for many short pieces of work.
//
// A product of one row with a weight takes microseconds, less than it takes to wake a thread. So the helpers stay awake
// for as long as the leader has work, and look out for the next piece. Nobody waits for a helper that the system holds
// up before it has begun: what nobody has taken, the leader does itself. Each thread begins with its own part of the
// pieces, the same ones every time, so that its share of a weight stays in its own cache.
#pragma once

#include <memory>
#include <utility>

#include "threads.hpp"

namespace weft {

class Team {
  public:
    Team() = default;
    explicit Team(uint64_t turn) : turn_(turn) {}  // as if so many turns were over: for tests of their overflow

    // Runs lead(), during which up to `threads` threads do what it hands to `share`.
    template <typename Lead>
    void gather(int64_t threads, const Lead& lead) {
        if (threads <= 1) return lead();
        if (members_ != threads) parts_ = std::make_unique<Part[]>(static_cast<size_t>(threads));
        members_ = threads;
        over_ = false;
        const uint64_t before = turn_;
        struct Ending {  // the helpers go home whatever happens
            Team& team;
            ~Ending() {
                team.here_ = 1;
                team.over_ = true;
            }
        };
        here_ = threads;
        parallel(threads, threads, [&](int64_t i) {
            if (i) return follow(i, before);
            Ending ending{*this};
            lead();
        });
    }

    // Calls work(first, last) until all of 0..count-1 are done once: alone all at once, else one by one.
    template <typename Work>
    void share(int64_t count, const Work& work) {
        if (here_ == 1 || count <= 1) return work(0, count);
        const uint64_t turn = turn_ + 1;
        // In this order: who comes late to the last turn and sees anything of this one must find nothing left to take.
        for (int64_t i = 0; i < members_; ++i) parts_[static_cast<size_t>(i)].next = turn << 32;
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
        std::atomic<uint64_t> next{
            0};  // the low half of the turn, and in the low half of this how many pieces are taken
    };

    void follow(int64_t me, uint64_t seen) {
        for (int spins = 0; !over_; ++spins) {
            const uint64_t turn = turn_;
            if (turn != seen) {
                take(me, seen = turn);
                spins = 0;
            }
            relax(spins);
        }
    }

    // One's own part first, then what is left of the others'.
    void take(int64_t me, uint64_t turn) {
        void (*const call)(void*, int64_t) = call_;
        void* const data = data_;
        const int64_t count = count_;
        const uint64_t tag = turn & 0xffffffff;  // all of a turn that `next` has room for
        for (int64_t n = 0; n < members_; ++n) {
            const int64_t whose = (me + n) % members_;
            const int64_t first = count * whose / members_, last = count * (whose + 1) / members_;
            std::atomic<uint64_t>& next = parts_[static_cast<size_t>(whose)].next;
            for (uint64_t now = next; now >> 32 == tag;) {
                const int64_t piece = first + static_cast<int64_t>(now & 0xffffffff);
                if (piece >= last) break;
                if (!next.compare_exchange_weak(now, now + 1)) continue;
                try {
                    call(data, piece);
                } catch (...) {  // share() throws it again, when nobody works on its pieces any more
                    if (!threw_.exchange(true)) thrown_ = std::current_exception();
                }
                ++done_;
                now = next;
            }
        }
    }

    static void relax(int spins) {
        if (spins > 4000) return std::this_thread::yield();  // where threads share a core, let another one run
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    int64_t members_ = 1, here_ = 1;
    std::unique_ptr<Part[]> parts_;
    alignas(64) std::atomic<uint64_t> turn_{0};
    std::atomic<bool> over_{true};
    std::atomic<int64_t> count_{0};
    std::atomic<void*> data_{nullptr};
    std::atomic<void (*)(void*, int64_t)> call_{nullptr};
    std::atomic<bool> threw_{false};
    std::exception_ptr thrown_;  // by the first piece that threw
    alignas(64) std::atomic<int64_t> done_{0};
};

}  // namespace weft
