// What is made of a cell's parameters before its step can run: the bias of the projected input, the table of vectors,
// and the weights in panels. A stream packs them once. So does a layer whose weights are kept from call to call; any
// other layer makes them anew in each call (run.hpp, loop_weights.hpp), since its weights may have changed.
#pragma once

#include <memory>

#include "gemm.hpp"
#include "shared_columns.hpp"

namespace weft {

// The bias of the projected input: bias_ih, and recurrent biases that can be added to it.
template <typename T>
void fill_bias(const CellRun<T>& call, T* bias) {
    const Program& program = *call.program;
    const int64_t H = program.hidden;
    std::copy_n(call.parameters[1], program.width(), bias);
    std::fill(bias + program.width(), bias + call.input_columns(), T(0));
    for (const auto& [block, number] : program.input_vectors) {
        const VectorSource& vector = program.vectors[static_cast<size_t>(number)];
        const T* from = call.parameters[static_cast<size_t>(vector.parameter)] + vector.start;
        for (int64_t u = 0; u < H; ++u) bias[block * H + u] += from[vector.single ? 0 : u];
    }
}

template <typename T>
int64_t vector_elements(const CellRun<T>& call) {
    return static_cast<int64_t>(call.program->vectors.size() + call.program->vector_sums.size()) * call.program->hidden;
}

// Fills the table of vectors (vectors + sums, H); the last rows are sums of others.
template <typename T>
void fill_vectors(const CellRun<T>& call, T* row) {
    const int64_t H = call.program->hidden;
    const T* table = row;
    for (const VectorSource& vector : call.program->vectors) {
        const T* from = call.parameters[static_cast<size_t>(vector.parameter)] + vector.start;
        for (int64_t u = 0; u < H; ++u) row[u] = from[vector.single ? 0 : u];
        row += H;
    }
    for (const std::vector<int>& terms : call.program->vector_sums) {
        std::fill_n(row, H, T(0));
        for (int number : terms)
            for (int64_t u = 0; u < H; ++u) row[u] += table[number * H + u];
        row += H;
    }
}

// Rows of the projected input that are columns of weight_ih: id(i) for row i.
template <typename T, typename Id>
void project_ids(const CellRun<T>& call, const T* bias, int64_t from, int64_t to, const Id& id) {
    constexpr int64_t some = 16;  // rows of the weight at a time, so that their lines stay in the cache
    const int64_t width = call.program->width();
    for (int64_t j = 0; j < width; j += some)
        for (int64_t i = from; i < to; ++i) {
            const T* weight = call.parameters[0] + id(i);
            T* row = call.base[INPUT] + i * width;
            for (int64_t n = j; n < std::min(j + some, width); ++n) row[n] = weight[n * call.inputs] + bias[n];
        }
}

template <typename T>
class Memory {  // aligned, owned
  public:
    explicit Memory(int64_t count) : data_(workspace_.elements<T>(std::max<int64_t>(count, 1))) {}
    T* data() { return data_; }

  private:
    Workspace workspace_;
    T* data_;
};

// A packed weight: C = start + A W^T for a block of rows, in pieces of columns.
template <typename T>
class Weight {
  public:
    Weight(int64_t depth, int64_t columns, Precision precision)
        : columns_(round_up(columns, kPanel<T>)),
          packed_(panel_words(precision, depth) * columns_), panels_{packed_.data(), depth, precision} {}

    void pack(const T* weight, int64_t columns) {  // (columns, depth)
        for (int64_t p = 0; p < columns_ / kPanel<T>; ++p)
            panels_.fill(p, [&](T* panel) { pack_transposed(weight, panels_.depth, columns, p, panel); });
    }
    void pack(const std::vector<WeightBlock<T>>& blocks) {
        for (int64_t p = 0; p < columns_ / kPanel<T>; ++p)
            panels_.fill(p, [&](T* panel) {
                pack_forward(blocks.data(), static_cast<int64_t>(blocks.size()), panels_.depth, p, panel);
            });
    }

    // `converted` has room for the rows of A where they are not read as they stand: rows * converted_row() elements.
    template <typename Start>
    void multiply(ThreadPool& pool, int64_t rows, const T* a, int64_t a_stride, T* converted, T* c, int64_t c_stride,
                  const Start& start) const {
        multiply_shared(pool, rows, panels_.operand(rows, a, a_stride, converted), panels_, columns_, c, c_stride,
                        false, start);
    }

    const Panels<T>& panels() const { return panels_; }
    int64_t columns() const { return columns_; }
    int64_t converted_row() const { return converted_stride(panels_.precision, panels_.depth); }
    int64_t bytes() const { return panels_.words() * columns_ * static_cast<int64_t>(sizeof(T)); }

  private:
    int64_t columns_;
    Memory<T> packed_;
    Panels<T> panels_;
};

// Packed weights as Python holds them, whatever the type of their values. Streams and calls share them.
struct AnyLayerWeights {
    virtual ~AnyLayerWeights() = default;
};
using SharedWeights = std::shared_ptr<const AnyLayerWeights>;

// The weights of one cell in one direction, packed once, for token ids or for values.
template <typename T>
struct LayerWeights : AnyLayerWeights {
    const Program& program;
    int64_t inputs;                      // features of x, or the size of the vocabulary
    std::vector<T> bias;                 // of the projected input
    std::unique_ptr<Memory<T>> table;    // a row of projected input for each token, or
    std::unique_ptr<Weight<T>> input;    // weight_ih
    std::unique_ptr<Memory<T>> vectors;  // as fill_vectors() gives them
    std::vector<std::unique_ptr<Weight<T>>> products;

    LayerWeights(const abi::PackWeightsCall<T>& given, abi::Reader& reader)
        : program(*static_cast<const Program*>(given.program)), inputs(given.inputs) {
        const Precision precision = precision_of<T>(given.precision);
        CellRun<T> call{};
        call.program = &program;
        call.inputs = inputs;
        for (size_t i = 0; i < program.parameters.size(); ++i) call.parameters.push_back(reader.take<const T*>());
        const int64_t width = program.width(), H = program.hidden;
        bias.assign(static_cast<size_t>(round_up(width, kPanel<T>)), T(0));
        fill_bias(call, bias.data());
        if (given.by_id) {
            table = std::make_unique<Memory<T>>(inputs * width);
            call.put(INPUT, table->data(), width);
            project_ids(call, bias.data(), 0, inputs, [](int64_t i) { return i; });
        } else {
            input = std::make_unique<Weight<T>>(inputs, width, input_precision(precision, inputs));
            input->pack(call.parameters[0], width);
        }
        vectors = std::make_unique<Memory<T>>(vector_elements(call));
        fill_vectors(call, vectors->data());
        for (size_t k = 0; k < program.products.size(); ++k) {
            products.push_back(std::make_unique<Weight<T>>(H, program.products[k].blocks() * H, precision));
            products.back()->pack(call.weights(k));
        }
    }

    template <typename Do>
    void each(const Do& with) const {
        if (input) with(*input);
        for (const auto& weight : products) with(*weight);
    }

    int64_t bytes() const {
        int64_t elements = static_cast<int64_t>(bias.size()) + (table ? inputs * program.width() : 0), all = 0;
        each([&](const Weight<T>& weight) { all += weight.bytes(); });
        elements += static_cast<int64_t>(program.vectors.size() + program.vector_sums.size()) * program.hidden;
        return all + elements * static_cast<int64_t>(sizeof(T));
    }
};

}  // namespace weft
