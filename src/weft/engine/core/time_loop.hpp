// A program over time, forward and backward, for the rows of one task.
//
// Rows are independent, so a thread takes its rows through all steps without synchronization; few rows are taken
// through all steps by one thread, which shares the columns of its products with others. Rows are sorted by length, so
// the active ones are always the first n. At step s a row is at time s or, in reverse, at length - 1 - s of its own
// length: the reverse direction does not copy data.
#pragma once

#include "direction.hpp"
#include "initial_sums.hpp"
#include "loop_weights.hpp"
#include "shared_columns.hpp"

namespace weft {

constexpr int64_t kGap = 16;  // elements of padding, so that rows at powers of two do not collide in the cache

constexpr int64_t kProjectedRows = 64;  // of several steps that are projected at once

template <typename T>
class TimeLoop {
  public:
    TimeLoop(const CellRun<T>& call, const Code& code, const PackedWeights<T>& weights, const Task& task,
             ThreadPool& pool)
        : call_(call), code_(code), weights_(weights), program_(*call.program), rows_(task.rows), pool_(pool),
          H_(call.program->hidden), interpreter_(code, H_, arena(call, code, static_cast<int64_t>(rows_.size())),
                                                 sums_of(call, code, task), call.half_kept) {
        const std::vector<int64_t>& rows = rows_;
        const size_t n = rows.size();
        offsets_.resize(n);
        token_.resize(n);
        spread_.resize(n);
        source_.resize(n);
        for (size_t r = 0; r < n; ++r) offsets_[r] = call.offsets[static_cast<size_t>(rows[r])];
        input_ = base_[INPUT];
        for (size_t p = 0; p < code.places.size(); ++p) interpreter_.where(p) = locate(code.places[p]);
    }

    void forward() {
        const int64_t all = static_cast<int64_t>(rows_.size());
        for (int64_t r = 0; r < all; ++r)
            for (int64_t i = 0; i < program_.states; ++i) {
                fetch(local(STATE, r) + i * H_, call_.first[static_cast<size_t>(i)], rows_[static_cast<size_t>(r)]);
                if (length(r) == 0)
                    send(call_.last[static_cast<size_t>(i)], rows_[static_cast<size_t>(r)], local(STATE, r) + i * H_);
            }
        int64_t active = all;
        for (int64_t s = 0; (active = shrink(active, s)) > 0; ++s) {
            set_clock(active, s);
            if (call_.fused_input) project(active, s);
            interpreter_.run(code_.segments[0], active);
            for (size_t k = 0; k < program_.products.size(); ++k) {
                const Where<T> product{base_[PRODUCT] + product_column_[k], stride_[PRODUCT], nullptr};
                const Where<T> from = input(0);
                initial_.begin(k, active, from, call_.base[VECTORS], product);
                const int state = program_.products[k].state;
                const Buffer source = state >= 0 ? STATE : OPERAND;
                const int64_t column = H_ * (state >= 0 ? state : static_cast<int64_t>(k));
                const Panels<T>& weight = weights_.products[k];
                const T* h = base_[source] + column;
                multiply_shared(pool_, active, weight.operand(active, h, stride_[source], converted_), weight,
                                call_.forward_columns(k), product.base, product.stride, s % 2 == 1,
                                [&](int64_t n) { return initial_.of(k, n, from, call_.base[VECTORS], product); });
                interpreter_.run(code_.segments[k + 1], active);
            }
            for (int64_t r = shrink(active, s + 1); r < active; ++r)
                for (int64_t i = 0; i < program_.states; ++i)
                    send(call_.last[static_cast<size_t>(i)], rows_[static_cast<size_t>(r)],
                         local(NEW_STATE, r) + i * H_);
            exchange(STATE, NEW_STATE);
        }
        for (int64_t r = 0; r < all; ++r) {
            const int64_t row = rows_[static_cast<size_t>(r)], stride = call_.stride[OUTPUT];
            for (int64_t t = length(r); t < call_.steps; ++t)
                std::fill_n(call_.base[OUTPUT] + (row * call_.steps + t) * stride, H_, T(0));
        }
    }

    void backward() {
        const int64_t all = static_cast<int64_t>(rows_.size());
        const int64_t steps = all ? length(0) : 0;
        // If no gradient of the first state is wanted, the last product of the last step is not needed.
        const size_t products = program_.backward_order.size();
        const bool asked =
            std::any_of(call_.first.begin(), call_.first.end(), [](T* first) { return first != nullptr; });
        const size_t last_needed = !asked && products && code_.only_state(products) ? products - 1 : products;
        int64_t before = 0;
        for (int64_t s = steps - 1; s >= 0; --s) {
            int64_t active = before;
            while (active < all && length(active) > s) ++active;
            for (int64_t r = before; r < active; ++r)
                for (int64_t i = 0; i < program_.states; ++i)
                    fetch(local(D_STATE, r) + i * H_, call_.last[static_cast<size_t>(i)],
                          rows_[static_cast<size_t>(r)]);
            set_clock(active, s);
            interpreter_.run(code_.segments[0], active);
            for (size_t n = 0; n < program_.backward_order.size(); ++n) {
                if (s == 0 && n == last_needed) break;
                const auto k = static_cast<size_t>(program_.backward_order[n]);
                const Panels<T>& weight = weights_.products[k];
                const T* d = base_[D_PRODUCT] + d_product_column_[k];
                multiply_shared(pool_, active, weight.operand(active, d, stride_[D_PRODUCT], converted_), weight,
                                call_.backward_columns(), base_[D_OPERAND] + d_operand_column_[k], stride_[D_OPERAND],
                                s % 2 == 1, [](int64_t) { return Where<const T>{}; });
                interpreter_.run(code_.segments[n + 1], active);
            }
            exchange(D_STATE, D_NEW_STATE);
            before = active;
        }
        for (int64_t r = 0; r < all; ++r)
            for (int64_t i = 0; i < program_.states; ++i) {
                T* gradient = local(D_STATE, r) + i * H_;
                if (length(r) == 0) fetch(gradient, call_.last[static_cast<size_t>(i)], rows_[static_cast<size_t>(r)]);
                send(call_.first[static_cast<size_t>(i)], rows_[static_cast<size_t>(r)], gradient);
            }
    }

  private:
    // The sums of each row's group, which begin at zero; nothing, if the code has no sums.
    static std::vector<T*> sums_of(const CellRun<T>& call, const Code& code, const Task& task) {
        std::vector<T*> sums;
        if (!code.sums) return sums;
        sums.reserve(task.groups.size());
        for (int64_t group : task.groups) {
            T* own = call.sums + group * call.sums_of_group();
            if (sums.empty() || sums.back() != own) std::fill_n(own, call.sums_of_group(), T(0));
            sums.push_back(own);
        }
        return sums;
    }

    // Lays out the local buffers; returns the rest of the thread's memory, for the interpreter.
    T* arena(const CellRun<T>& call, const Code& code, int64_t rows) {
        static thread_local Workspace workspace;
        const Program& program = *call.program;
        const auto products = static_cast<int64_t>(program.products.size());
        int64_t columns[BUFFERS] = {};
        columns[STATE] = columns[NEW_STATE] = columns[D_STATE] = columns[D_NEW_STATE] = program.states * H_;
        columns[OPERAND] = products * H_;
        columns[SCRATCH] = code.scratch * H_;
        if (call.fused_input) columns[INPUT] = call.input_columns();
        for (size_t k = 0; k < program.products.size(); ++k) {
            product_column_.push_back(columns[PRODUCT]);
            d_product_column_.push_back(columns[D_PRODUCT]);
            d_operand_column_.push_back(columns[D_OPERAND]);
            columns[PRODUCT] += call.forward_columns(k);
            columns[D_PRODUCT] += program.products[k].blocks() * H_;
            columns[D_OPERAND] += call.backward_columns();
        }
        const bool several = call.fused_input && !call.has_small_weights() && rows > 0;
        projected_ = several ? round_up(kProjectedRows, rows) / rows : 1;
        x_stride_ = call.fused_input ? round_up(call.inputs, kGap) + kGap : 0;
        int64_t converted = call.fused_input ? projected_ * converted_stride(call.precision, call.inputs) : 0;
        for (const Panels<T>& weight : weights_.products)
            converted = std::max(converted, converted_stride(weight.precision, weight.depth));
        int64_t total = (projected_ * x_stride_ + converted) * rows;
        auto rows_of = [&](int buffer) { return buffer == INPUT ? projected_ * rows : rows; };
        for (int b = 0; b < BUFFERS; ++b) {
            stride_[b] = columns[b] ? round_up(columns[b], kGap) + kGap : 0;
            total += stride_[b] * rows_of(b);
        }
        T* next = workspace.elements<T>(total + Interpreter<T>::arena_size(code, H_));
        for (int b = 0; b < BUFFERS; ++b) {
            base_[b] = next;
            // Columns that pad the last panel are computed too, so they must be initialized.
            if (b == PRODUCT) std::fill(next, next + stride_[b] * rows, T(0));
            next += stride_[b] * rows_of(b);
        }
        x_ = next;
        converted_ = x_ + projected_ * x_stride_ * rows;
        return converted_ + converted * rows;
    }

    Where<T> locate(const Place& place) {
        const auto k = static_cast<size_t>(place.part);
        const int64_t column = place.block * H_;
        switch (place.buffer) {
            case STATE:
            case NEW_STATE:
            case SCRATCH:
            case D_STATE:
            case D_NEW_STATE: return {base_[place.buffer] + column, stride_[place.buffer], nullptr};
            case PRODUCT: return {base_[PRODUCT] + product_column_[k] + column, stride_[PRODUCT], nullptr};
            case OPERAND: return {base_[OPERAND] + place.part * H_, stride_[OPERAND], nullptr};
            case D_PRODUCT: return {base_[D_PRODUCT] + d_product_column_[k] + column, stride_[D_PRODUCT], nullptr};
            case D_OPERAND: return {base_[D_OPERAND] + d_operand_column_[k], stride_[D_OPERAND], nullptr};
            case VECTORS: return {call_.base[VECTORS] + column, 0, nullptr};
            case ROW_MASK: return {call_.base[ROW_MASK] + column, call_.stride[ROW_MASK], rows_.data()};
            case OUTPUT:
            case D_OUTPUT:
            case STEP_MASK: return {call_.base[place.buffer] + column, call_.stride[place.buffer], spread_.data()};
            case INPUT: return input(column);
            case GATES:
            case EXTRA:
                if (call_.half_kept)
                    return {half_at(call_.base[place.buffer], column), call_.stride[place.buffer], token_.data()};
                [[fallthrough]];
            default: return {call_.base[place.buffer] + column, call_.stride[place.buffer], token_.data()};
        }
    }

    Where<T> input(int64_t column) const {
        if (call_.fused_input) return {input_ + column, stride_[INPUT], nullptr};
        return {call_.base[INPUT] + column, call_.stride[INPUT], source_.data()};
    }

    // Makes the projected input of step s available. A large weight projects several steps at once, which read it once;
    // what it gives is used before it leaves the second-level cache.
    void project(int64_t active, int64_t s) {
        if (s % projected_) {
            input_ += before_ * stride_[INPUT];
        } else {
            input_ = base_[INPUT];
            int64_t count = 0;
            for (int64_t step = s, rows = active; step < s + projected_; ++step) {
                rows = shrink(rows, step);
                for (int64_t r = 0; r < rows; ++r, ++count)
                    copy_row(call_.x + position(r, step) * call_.inputs, call_.inputs, x_ + count * x_stride_);
            }
            multiply_shared(pool_, count, weights_.input.operand(count, x_, x_stride_, converted_), weights_.input,
                            call_.input_columns(), base_[INPUT], stride_[INPUT], false, [this](int64_t n) {
                                return Where<const T>{call_.bias + n, 0, nullptr};
                            });
        }
        before_ = active;
        locate_all(INPUT, INPUT);
    }

    int64_t length(int64_t r) const { return call_.length(rows_[static_cast<size_t>(r)]); }
    T* local(Buffer buffer, int64_t r) const { return base_[buffer] + r * stride_[buffer]; }

    int64_t time(int64_t r, int64_t s) const { return call_.reverse ? length(r) - 1 - s : s; }
    int64_t position(int64_t r, int64_t s) const { return rows_[static_cast<size_t>(r)] * call_.steps + time(r, s); }

    int64_t shrink(int64_t active, int64_t s) const {
        while (active > 0 && length(active - 1) <= s) --active;
        return active;
    }

    void set_clock(int64_t active, int64_t s) {
        for (size_t r = 0; r < static_cast<size_t>(active); ++r) {
            token_[r] = offsets_[r] + time(static_cast<int64_t>(r), s);
            spread_[r] = position(static_cast<int64_t>(r), s);
            source_[r] = call_.by_id ? call_.ids[spread_[r]] : token_[r];
        }
    }

    void exchange(Buffer a, Buffer b) {
        std::swap(base_[a], base_[b]);
        locate_all(a, b);
    }

    void locate_all(Buffer a, Buffer b) {
        for (size_t p = 0; p < code_.places.size(); ++p)
            if (code_.places[p].buffer == a || code_.places[p].buffer == b)
                interpreter_.where(p) = locate(code_.places[p]);
    }

    void fetch(T* to, const T* from, int64_t row) {
        if (from)
            std::memcpy(to, from + row * H_, static_cast<size_t>(H_) * sizeof(T));
        else
            std::fill_n(to, H_, T(0));
    }
    void send(T* to, int64_t row, const T* from) {
        if (to) std::memcpy(to + row * H_, from, static_cast<size_t>(H_) * sizeof(T));
    }

    const CellRun<T>& call_;
    const Code& code_;
    const PackedWeights<T>& weights_;
    const Program& program_;
    const std::vector<int64_t>& rows_;
    ThreadPool& pool_;
    int64_t H_;
    T* base_[BUFFERS];
    int64_t stride_[BUFFERS];
    // fused_input: the input of `projected_` steps, row by row, and the projected input of this step
    T *x_, *input_;
    int64_t x_stride_, projected_, before_ = 0;  // before_: the active rows of the step before
    T* converted_;                               // the operand of a product, where it is not read as it stands
    std::vector<int64_t> product_column_, d_product_column_, d_operand_column_;
    std::vector<int64_t> offsets_, token_, spread_, source_;
    Interpreter<T> interpreter_;
    const InitialSums<T> initial_{program_};
};

}  // namespace weft
