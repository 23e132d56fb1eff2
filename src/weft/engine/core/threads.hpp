// Parallel loops, and memory that threads reuse.
//
// torch's OpenMP workers spin for a while after each parallel region, so a second set of threads would compete with
// them for the cores. `parallel` therefore runs on the same workers, through the entry point of the OpenMP runtime that
// torch has loaded (Python passes its address). Without it, and in a forked child, where those workers do not exist, it
// starts plain threads for the call.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace weft {

using ParallelRegion = void (*)(void (*)(void*), void*, unsigned, unsigned);

struct Workers {
    ParallelRegion region = nullptr;
    pid_t owner = 0;
};
inline Workers& workers() {
    static Workers the_workers;
    return the_workers;
}

// A number for each thread. It never changes, and OpenMP workers live from call to call.
inline int64_t number_of_thread() {
    static std::atomic<int64_t> next{1};
    static thread_local const int64_t number = next.fetch_add(1);
    return number;
}

// Calls work(i) for i in 0..count-1 on up to `threads` threads. A thread begins with the pieces it had in earlier
// calls, whose memory is in its caches, then takes pieces that no thread has begun. Results do not depend on the
// assignment.
template <typename Work>
void parallel(int64_t count, int64_t threads, const Work& work) {
    struct Shared {
        const Work& work;
        int64_t count, threads, caller;
        std::vector<std::atomic<bool>> begun;
        std::atomic<bool> threw{false};
        std::exception_ptr thrown;  // the first exception
        void try_to_do(int64_t i) {
            if (begun[static_cast<size_t>(i)].exchange(true)) return;
            try {
                work(i);
            } catch (...) {
                if (!threw.exchange(true)) thrown = std::current_exception();
            }
        }
        static void run(void* data) {
            Shared& shared = *static_cast<Shared*>(data);
            const int64_t number = number_of_thread(), mine = number == shared.caller ? 0 : number % shared.threads;
            for (int64_t i = mine; i < shared.count; i += shared.threads) shared.try_to_do(i);
            for (int64_t i = 0; i < shared.count; ++i) shared.try_to_do(i);
        }
    };
    threads = threads < count ? threads : count;
    if (threads <= 1) {
        for (int64_t i = 0; i < count; ++i) work(i);
        return;
    }
    Shared shared{
        work,    count, threads, number_of_thread(), std::vector<std::atomic<bool>>(static_cast<size_t>(count)),
        {false}, {}};
    if (workers().region && workers().owner == getpid()) {
        workers().region(Shared::run, &shared, static_cast<unsigned>(threads), 0);
    } else {
        std::vector<std::thread> helpers;
        helpers.reserve(static_cast<size_t>(threads));
        try {
            for (int64_t i = 1; i < threads; ++i) helpers.emplace_back(Shared::run, &shared);
        } catch (const std::system_error&) {
            // The system gives no more threads. The existing ones do all of the work.
        }
        Shared::run(&shared);
        for (std::thread& helper : helpers) helper.join();
    }
    if (shared.thrown) std::rethrow_exception(shared.thrown);
}

// Independent jobs, run in any order on any thread.
class Jobs {
  public:
    // cost: the approximate number of elements that the job touches.
    void add(int64_t cost, std::function<void()> job) {
        cost_ += cost;
        jobs_.push_back(std::move(job));
    }
    // Runs on one thread if the total cost is below `least`: moving data between caches would cost more.
    void run(int64_t threads, int64_t least = 32768) {
        parallel(static_cast<int64_t>(jobs_.size()), cost_ < least ? 1 : threads,
                 [&](int64_t i) { jobs_[static_cast<size_t>(i)](); });
        jobs_.clear();
        cost_ = 0;
    }

  private:
    std::vector<std::function<void()>> jobs_;
    int64_t cost_ = 0;
};

constexpr size_t kHugePage = size_t(1) << 21;

// Bytes of a work area that are kept from call to call, since pages fresh from the system cost more than what is
// written to them: a 64th of the machine's memory, from 64 to 512 MB.
inline size_t kept_bytes() {
    static const auto memory =
        static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return std::clamp(memory / 64, size_t(64) << 20, size_t(512) << 20);
}

// Memory that a thread reuses from call to call: aligned to cache lines, on huge pages if it is large.
class Workspace {
  public:
    ~Workspace() { std::free(data_); }
    void* bytes(size_t size) {
        if (size > size_) {
            std::free(data_);
            size_ = 0;
            const size_t unit = size < kHugePage ? 64 : kHugePage;
            size = (size + unit - 1) / unit * unit;
            data_ = std::aligned_alloc(unit, size);
            if (!data_) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
            if (unit == kHugePage) madvise(data_, size, MADV_HUGEPAGE);
#endif
            size_ = size;
        }
        return data_;
    }
    template <typename T>
    T* elements(int64_t count) {
        return static_cast<T*>(bytes(static_cast<size_t>(count) * sizeof(T)));
    }

    // Gives memory back where it is more than is kept from call to call.
    void trim() {
        if (size_ <= kept_bytes()) return;
        std::free(data_);
        data_ = nullptr;
        size_ = 0;
    }

  private:
    void* data_ = nullptr;
    size_t size_ = 0;
};

// Divides a workspace into arrays: request all of them with ask(), then allocate them with settle().
template <typename T>
class Arena {
  public:
    void ask(T*& piece, int64_t count) { asked_.push_back({&piece, (count + kLine - 1) / kLine * kLine}); }
    void settle(Workspace& workspace) {
        int64_t total = 0;
        for (const Asked& asked : asked_) total += asked.count;
        T* next = workspace.elements<T>(total);
        for (const Asked& asked : asked_) {
            *asked.piece = next;
            next += asked.count;
        }
    }

  private:
    static constexpr int64_t kLine = 64 / sizeof(T);
    struct Asked {
        T** piece;
        int64_t count;
    };
    std::vector<Asked> asked_;
};

}  // namespace weft
