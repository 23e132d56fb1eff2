// Forward and backward pass of layers: the work before the time loop, the loop, and the work after it.
//
// Forward, weights are packed and the inputs of all steps are projected. Token ids never become one-hot rows: the loop
// reads rows of the projected vocabulary. Backward, the gradients of weights and inputs are products over all tokens.
#pragma once

#include <map>
#include <set>

#include "gemm.hpp"
#include "layers.hpp"
#include "loop_weights.hpp"
#include "time_loop.hpp"

namespace weft {

// Rows from which the time loop projects its input itself, and up to which it does so in inference (fuses_input): with
// fewer rows a step waits for weight_ih, with more one product before the loop runs at the kernel's rate.
constexpr int64_t kFusedRows = 3;
constexpr int64_t kMostFusedRows = 4 * kProjectedRows;
constexpr int64_t kSharedPacking = int64_t(1) << 18;  // elements; one thread packs them in 25 microseconds

// The gradient of weight_ih from that of the projected input, for some of its rows: column v is the sum over the tokens
// with id v. Sums are collected with ids as rows and transposed at the end.
template <typename T>
void add_by_id(const CellRun<T>& call, int64_t first, int64_t last) {
    static thread_local Workspace workspace;
    const int64_t columns = last - first, stride = call.stride[D_INPUT];
    T* sums = workspace.elements<T>(call.inputs * columns);
    std::fill_n(sums, call.inputs * columns, T(0));
    const T* from = call.base[D_INPUT] + first;
    for (int64_t b = 0; b < call.rows; ++b)
        for (int64_t t = 0; t < call.length(b); ++t, from += stride) {
            __builtin_prefetch(from + kAhead * stride);
            __builtin_prefetch(from + kAhead * stride + columns / 2);
            T* sum = sums + call.ids[b * call.steps + t] * columns;
            for (int64_t j = 0; j < columns; ++j) sum[j] += from[j];
        }
    for (int64_t j = 0; j < columns; ++j) {
        T* to = call.gradients[0] + (first + j) * call.inputs;
        for (int64_t v = 0; v < call.inputs; ++v) to[v] = sums[v * columns + j];
    }
    workspace.trim();
}

// Whether the time loop projects its input itself: the projected input then stays in the cache, unless the rows are
// many. In training its memory becomes that of kept values, so only small weights are worth it. A few rows would wait
// for weight_ih at each step.
template <typename T>
bool fuses_input(const CellRun<T>& call) {
    const bool exact = call.precision == Precision::exact;
    if (call.ids) return false;
    if (call.half_kept) return true;  // what is kept has no room for the projected input
    if (call.rows < kFusedRows && exact) return false;
    if (call.precision == Precision::int8 && !fits_int8(call.inputs)) return false;
    if (call.has_small_weights()) return true;
    return !call.train && call.rows <= kMostFusedRows && (call.rows >= kTileRows || !exact);
}

// Runs the directions of one layer.
template <typename T>
Status forward_layer(std::vector<CellRun<T>>& calls, int64_t threads) {
    static thread_local Workspace workspace;
    Arena<T> arena;
    Gemms<T> products;
    for (CellRun<T>& call : calls) {
        if (!ids_in_range(call)) return Status::id_out_of_range;
        const int64_t width = call.program->width();
        const int64_t kinds = call.distinct ? call.distinct : call.inputs,
                      read = call.distinct ? call.distinct : call.tokens;
        call.by_id = call.ids &&
                     (call.distinct || kinds <= std::max<int64_t>(call.tokens, 1024));  // otherwise only ids that occur
        call.fused_input = fuses_input(call);
        const LayerWeights<T>* kept = call.kept_weights;
        if (kept) {
            call.bias = const_cast<T*>(kept->bias.data());
            call.base[VECTORS] = kept->vectors->data();
        } else {
            arena.ask(call.bias, call.input_columns());
            arena.ask(call.base[VECTORS], vector_elements(call));
        }
        if (call.fused_input) continue;
        if (kept && kept->table) {  // a row for each id
            call.by_id = true;
            call.put(INPUT, kept->table->data(), width);
            continue;
        }
        call.put(INPUT, call.kept, width);
        if (!call.kept || call.half_kept || call.by_id)
            arena.ask(call.base[INPUT], (call.by_id ? kinds : call.tokens) * width);
        if (!call.ids || call.distinct) {
            const int n = products.add({.rows = read,
                                        .columns = width,
                                        .depth = call.inputs,
                                        .a = call.x,
                                        .a_row = call.inputs,
                                        .a_depth = 1,
                                        .b = call.parameters[0],
                                        .b_depth = 1,
                                        .b_column = call.inputs,
                                        .c_row = width});
            products[n].precision = input_precision(call.precision, call.inputs);
            if (kept) {
                products[n].packed = kept->input->panels().data;
                products[n].kept = true;
            }
        }
    }
    const int64_t column_threads = threads_for_columns(calls, threads);
    LoopWeights<T> weights(calls, false, column_threads > 1);
    weights.ask(arena);
    products.ask(arena);
    arena.settle(workspace);
    Jobs jobs;
    weights.pack(jobs);
    int number = 0;
    for (CellRun<T>& call : calls) {
        if (!call.kept_weights) {
            fill_bias(call, call.bias);
            fill_vectors(call, call.base[VECTORS]);
        }
        if (call.fused_input || (call.kept_weights && call.kept_weights->table)) continue;
        if (!call.ids || call.distinct) {
            Gemm<T>& work = products[number++];
            work.c = call.base[INPUT];
            work.start = call.bias;
            work.a_index = call.distinct ? nullptr : call.positions;
            continue;
        }
        const int64_t rows = call.by_id ? call.inputs : call.tokens, some = 64;
        for (int64_t from = 0; from < rows; from += some)
            jobs.add(some * call.program->width(), [&call, from, to = std::min(from + some, rows)] {
                const int64_t* positions = call.positions;
                if (call.by_id)
                    project_ids(call, call.bias, from, to, [](int64_t i) { return i; });
                else
                    project_ids(call, call.bias, from, to,
                                [&call, positions](int64_t i) { return call.ids[positions ? positions[i] : i]; });
            });
    }
    products.pack(jobs, false);
    jobs.run(threads, kSharedPacking);
    products.multiply(jobs);
    jobs.run(threads);
    const std::vector<Task> tasks = divide(calls, column_threads > 1 ? 1 : threads);
    run_loops(static_cast<int64_t>(tasks.size()), threads, column_threads, [&](int64_t i, ThreadPool& pool) {
        const Task& task = tasks[static_cast<size_t>(i)];
        const CellRun<T>& call = calls[task.call];
        const Code& code = call.train ? call.program->train : call.program->run;
        TimeLoop<T>(call, code, weights.of(task.call), task, pool).forward();
    });
    workspace.trim();
    return Status::ok;
}

// Dropout, in place, on what layer n reads from the layer below, or on its gradient.
template <typename T>
void drop_between(const Run<T>& run, size_t n, T* values, int64_t threads) {
    const Dropout& dropout = run.layers[n].dropout;
    if (dropout.keep) drop(dropout, run.rows.count * run.rows.steps * run.layers[n - 1].width, values, values, threads);
}

// Runs the layers from the first to the last.
template <typename T>
Status run_forward(const abi::RunCall<T>& call, abi::Reader& reader) {
    if (!lengths_in_range(call.lengths, call.rows, call.steps)) return Status::length_out_of_range;
    Run<T> run(call, reader, false);
    Status status = read_rows(run.embedding, call.threads);
    for (size_t n = 0; status == Status::ok && n < run.layers.size(); ++n) {
        if (n) drop_between(run, n, run.layers[n - 1].outputs, call.threads);
        status = forward_layer(run.layers[n].calls, call.threads);
    }
    return status;
}

// The products that give the gradients of a call's weights and input. `into` maps each target to the last product into
// it.
template <typename T>
void add_gradients(const CellRun<T>& call, Gemms<T>& products, std::map<const T*, int>& into) {
    const Program& program = *call.program;
    const int64_t H = program.hidden, N = call.tokens, width = program.width();
    auto add = [&](Gemm<T> work) {
        const auto before = into.find(work.c);
        work.add = before != into.end();
        work.precision = call.precision;
        const int number = products.add(work);
        if (work.add) products[before->second].next = number;
        into[work.c] = number;
        return number;
    };
    const T* d_input = call.base[D_INPUT];
    if (!call.ids && call.gradients[0]) {
        const int n = add({.rows = width,
                           .columns = call.inputs,
                           .depth = N,
                           .a = d_input,
                           .a_row = 1,
                           .a_depth = width,
                           .b = call.x,
                           .b_depth = call.inputs,
                           .b_column = 1,
                           .c = call.gradients[0],
                           .c_row = call.inputs});
        products[n].b_index = call.positions;
    }
    if (call.d_x) {
        const int n = add({.rows = N,
                           .columns = call.inputs,
                           .depth = width,
                           .a = d_input,
                           .a_row = width,
                           .a_depth = 1,
                           .b = call.parameters[0],
                           .b_depth = call.inputs,
                           .b_column = 1,
                           .c = call.d_x,
                           .c_row = call.inputs});
        products[n].c_index = call.positions;
    }
    for (const WeightGradient& gradient : program.weight_gradients) {
        T* whole = call.gradients[static_cast<size_t>(gradient.weight.parameter)];
        if (!whole) continue;
        const int64_t row = program.parameters[static_cast<size_t>(gradient.weight.parameter)].row,
                      size = gradient.blocks * H;
        const Place& operand = program.products[static_cast<size_t>(gradient.product)].operand;
        const T* d = call.base[gradient.gradient.buffer] + gradient.gradient.block * H;
        const bool half = call.half_kept && operand.buffer == EXTRA;
        const T* h =
            half ? half_at(call.base[EXTRA], operand.block * H) : call.base[operand.buffer] + operand.block * H;
        const int64_t d_stride = call.stride[gradient.gradient.buffer], h_stride = call.stride[operand.buffer];
        if (gradient.weight.transposed) {
            const int n = add({.rows = H,
                               .columns = size,
                               .depth = N,
                               .a = h,
                               .a_row = 1,
                               .a_depth = h_stride,
                               .b = d,
                               .b_depth = d_stride,
                               .b_column = 1,
                               .c = whole + gradient.weight.start,
                               .c_row = row});
            products[n].late = true;
        } else {
            const int n = add({.rows = size,
                               .columns = H,
                               .depth = N,
                               .a = d,
                               .a_row = 1,
                               .a_depth = d_stride,
                               .b = h,
                               .b_depth = h_stride,
                               .b_column = 1,
                               .c = whole + gradient.weight.start * row,
                               .c_row = row});
            products[n].late = operand.buffer == OPERANDS;
            products[n].half_b = half;
        }
    }
}

// Clears the gradients of weights of which the step uses only a part.
template <typename T>
void clear_unused(const CellRun<T>& call) {
    const Program& program = *call.program;
    std::map<int, std::set<int64_t>> used;  // the starts of the used blocks of each parameter
    for (const WeightGradient& gradient : program.weight_gradients)
        for (int64_t b = 0; b < gradient.blocks; ++b)
            used[gradient.weight.parameter].insert(gradient.weight.start + b * program.hidden);
    for (const auto& [number, starts] : used) {
        const int64_t elements = program.parameters[static_cast<size_t>(number)].elements;
        T* gradient = call.gradients[static_cast<size_t>(number)];
        if (gradient && static_cast<int64_t>(starts.size()) * program.hidden * program.hidden < elements)
            std::fill_n(gradient, elements, T(0));
    }
}

// From sums over rows and steps to the gradients of bias_ih and of every parameter used as a vector.
template <typename T>
void finish_vectors(const CellRun<T>& call) {
    const Program& program = *call.program;
    const int64_t H = program.hidden, padded = round_up(H, kWidth<T>);
    std::vector<bool> begun(program.parameters.size(), false);
    begun[0] = true;
    for (const WeightGradient& gradient : program.weight_gradients)
        begun[static_cast<size_t>(gradient.weight.parameter)] = true;
    for (size_t i = 0; i < begun.size(); ++i)
        if (!begun[i] && call.gradients[i]) std::fill_n(call.gradients[i], program.parameters[i].elements, T(0));
    if (T* bias = call.gradients[1])
        for (size_t g = 0; g < program.input_sums.size(); ++g)
            if (program.input_sums[g] >= 0)
                std::copy_n(call.sums + program.input_sums[g] * padded, H, bias + static_cast<int64_t>(g) * H);
    for (size_t v = 0; v < program.vectors.size(); ++v) {
        const VectorSource& vector = program.vectors[v];
        T* gradient = call.gradients[static_cast<size_t>(vector.parameter)];
        if (!gradient) continue;
        for (int number : program.vector_gradients[v])
            for (int64_t u = 0; u < H; ++u)
                gradient[vector.start + (vector.single ? 0 : u)] += call.sums[number * padded + u];
    }
}

template <typename T>
void run_backward_loops(std::vector<CellRun<T>>& calls, const LoopWeights<T>& weights, int64_t threads,
                        int64_t column_threads) {
    const std::vector<Task> tasks = divide(calls, column_threads > 1 ? 1 : threads);
    run_loops(static_cast<int64_t>(tasks.size()), threads, column_threads, [&](int64_t i, ThreadPool& pool) {
        const Task& task = tasks[static_cast<size_t>(i)];
        const CellRun<T>& call = calls[task.call];
        TimeLoop<T>(call, call.program->backward, weights.of(task.call), task, pool).backward();
    });
    for (const CellRun<T>& call : calls) {  // the sums of the first group become those of all rows
        if (call.rows == 0) std::fill_n(call.sums, call.sums_of_group(), T(0));
        for (int64_t group = 1; group < groups_of(call.rows); ++group) {
            const T* from = call.sums + group * call.sums_of_group();
            for (int64_t j = 0; j < call.sums_of_group(); ++j) call.sums[j] += from[j];
        }
    }
}

template <typename T>
void backward_layer(std::vector<CellRun<T>>& calls, int64_t threads) {
    static thread_local Workspace workspace, panels;
    Arena<T> arena, panel_arena;
    for (CellRun<T>& call : calls) {
        const Program& program = *call.program;
        const int64_t H = program.hidden;
        call.put(D_INPUT, nullptr, program.width());
        call.put(D_PRODUCTS, nullptr, program.d_products * H);
        call.put(OPERANDS, nullptr, program.operands * H);
        for (Buffer buffer : {D_INPUT, D_PRODUCTS, OPERANDS})
            arena.ask(call.base[buffer], call.tokens * call.stride[buffer]);
        arena.ask(call.base[VECTORS], vector_elements(call));
        arena.ask(call.sums, std::max<int64_t>(1, groups_of(call.rows)) * call.sums_of_group());
    }
    const int64_t column_threads = threads_for_columns(calls, threads);
    LoopWeights<T> weights(calls, true, column_threads > 1);
    weights.ask(arena);
    arena.settle(workspace);
    Gemms<T> products;
    std::map<const T*, int> into;
    for (const CellRun<T>& call : calls) add_gradients(call, products, into);
    products.ask(panel_arena);
    panel_arena.settle(panels);

    Jobs jobs;
    for (const CellRun<T>& call : calls) fill_vectors(call, call.base[VECTORS]);
    weights.pack(jobs);
    products.pack(jobs, false);
    jobs.run(threads, kSharedPacking);
    run_backward_loops(calls, weights, threads, column_threads);
    products.pack(jobs, true);
    jobs.run(threads, kSharedPacking);
    for (const CellRun<T>& call : calls) {
        clear_unused(call);
        const int64_t width = call.program->width(), some = 64;
        for (int64_t first = 0; call.ids && call.gradients[0] && first < width; first += some)
            jobs.add(call.tokens * some,
                     [&call, first, last = std::min(first + some, width)] { add_by_id(call, first, last); });
    }
    products.multiply(jobs);
    jobs.run(threads);
    for (const CellRun<T>& call : calls) finish_vectors(call);
    workspace.trim();
    panels.trim();
}

// Runs the layers from the last to the first.
template <typename T>
Status run_backward(const abi::RunCall<T>& call, abi::Reader& reader) {
    if (!lengths_in_range(call.lengths, call.rows, call.steps)) return Status::length_out_of_range;
    const int64_t threads = call.threads;
    Run<T> run(call, reader, true);
    for (size_t n = run.layers.size(); n-- > 0;) {
        backward_layer(run.layers[n].calls, threads);
        if (n) drop_between(run, n, run.layers[n - 1].d_outputs, threads);
    }
    const CellRun<T>& first = run.layers[0].calls[0];
    if (run.embedding.is_wanted())
        add_rows(run.embedding, threads);
    else if (first.d_x && first.lengths)
        for (int64_t b = 0; b < first.rows; ++b)
            std::fill(first.d_x + (b * first.steps + first.length(b)) * first.inputs,
                      first.d_x + (b + 1) * first.steps * first.inputs, T(0));
    return Status::ok;
}

}  // namespace weft
