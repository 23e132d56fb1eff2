// A program: the instructions of a cell's step, forward and backward, and how parameters and gradients map to it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "abi.hpp"

namespace weft {

struct Place {
    int buffer, part, block;
};

struct Instruction {
    Op op;
    bool uniform;  // the same on all lanes of a row
    int target, a, b, c;
};

struct Segment {
    std::vector<int> loads, stores;
    std::vector<int> used;  // loads and stores, each place once
    std::vector<Instruction> instructions;
    bool accumulates = false;  // an instruction adds to sums over rows
};

struct Code {
    std::vector<Place> places;
    std::vector<double> constants;
    int sums, registers, scratch = 0;
    bool whole_rows;  // an instruction needs all units of a row at once
    std::vector<Segment> segments;

    // Whether a segment writes nothing but the gradient of the state before.
    bool only_state(size_t segment) const {
        for (int p : segments[segment].stores)
            if (places[static_cast<size_t>(p)].buffer != D_NEW_STATE) return false;
        return !segments[segment].accumulates;
    }
};

struct VectorSource {  // H elements of a parameter, or one element for all units
    int parameter;
    int64_t start;
    bool single;
};

struct BlockSource {  // H rows (transposed: columns) of a weight
    int parameter;
    int64_t start;
    bool transposed;
};

struct ProductShape {
    int state;  // the state that is the operand as it stands, or -1
    std::vector<int> input_block, vector;
    std::vector<BlockSource> weights;
    Place operand;  // where the backward pass finds the operand of all steps
    int blocks() const { return static_cast<int>(input_block.size()); }
};

// Adjacent rows (transposed: columns) of a weight whose gradient is one product.
struct WeightGradient {
    int product;
    Place gradient;
    int blocks;
    BlockSource weight;
};

struct Parameter {
    int64_t elements, row;  // in all, and in a row
};

struct Program {
    int64_t hidden, blocks, states;
    std::vector<ProductShape> products;
    std::vector<int> backward_order;
    Code run, train, backward;

    // Parameters, weight_ih and bias_ih first, and where their values and gradients belong.
    std::vector<Parameter> parameters;
    std::vector<VectorSource> vectors;
    std::vector<std::vector<int>> vector_sums;      // further rows of the table of vectors
    std::vector<std::array<int, 2>> input_vectors;  // (block, vector): added to the input's bias
    int64_t extra, d_products, operands;            // blocks a token
    std::vector<WeightGradient> weight_gradients;
    std::vector<int> input_sums;                     // for each input block the sum that is its bias's gradient, or -1
    std::vector<std::vector<int>> vector_gradients;  // for each vector the sums that make up its gradient

    int64_t width() const { return blocks * hidden; }  // of the projected input
    int64_t kept() const { return width() + extra * hidden; }
};

inline Place read_place(int64_t buffer, int64_t part, int64_t block) {
    return {.buffer = static_cast<int>(buffer), .part = static_cast<int>(part), .block = static_cast<int>(block)};
}

inline std::vector<int> read_indices(abi::Reader& reader, int64_t count) {
    std::vector<int> found(static_cast<size_t>(count));
    for (int& index : found) index = static_cast<int>(reader.take<int64_t>());
    return found;
}

inline std::vector<std::vector<int>> read_lists(abi::Reader& reader, int64_t count) {
    std::vector<std::vector<int>> found(static_cast<size_t>(count));
    for (std::vector<int>& list : found) list = read_indices(reader, reader.take<abi::ListHeader<void>>().length);
    return found;
}

inline Segment read_segment(abi::Reader& reader, size_t places) {
    const auto& header = reader.take<abi::SegmentHeader<void>>();
    Segment segment;
    segment.loads = read_indices(reader, header.loads);
    segment.stores = read_indices(reader, header.stores);
    std::vector<bool> seen(places, false);
    for (const std::vector<int>* some : {&segment.loads, &segment.stores})
        for (int p : *some)
            if (!seen[static_cast<size_t>(p)]) {
                seen[static_cast<size_t>(p)] = true;
                segment.used.push_back(p);
            }
    for (int64_t i = 0; i < header.instructions; ++i) {
        const auto& given = reader.take<abi::Instruction<void>>();
        segment.instructions.push_back({.op = static_cast<Op>(given.op),
                                        .uniform = given.uniform != 0,
                                        .target = static_cast<int>(given.target),
                                        .a = static_cast<int>(given.a),
                                        .b = static_cast<int>(given.b),
                                        .c = static_cast<int>(given.c)});
        segment.accumulates |= segment.instructions.back().op == Op::accumulate;
    }
    return segment;
}

inline Code read_code(abi::Reader& reader) {
    const auto& header = reader.take<abi::CodeHeader<void>>();
    Code code;
    code.sums = static_cast<int>(header.sums);
    code.registers = static_cast<int>(header.registers);
    code.whole_rows = header.whole_rows != 0;
    for (int64_t i = 0; i < header.places; ++i) {
        const auto& given = reader.take<abi::Place<void>>();
        const Place place = read_place(given.buffer, given.part, given.block);
        if (place.buffer == SCRATCH && place.block >= code.scratch) code.scratch = place.block + 1;
        code.places.push_back(place);
    }
    for (int64_t i = 0; i < header.constants; ++i) code.constants.push_back(reader.take<double>());
    for (int64_t s = 0; s < header.segments; ++s) code.segments.push_back(read_segment(reader, code.places.size()));
    return code;
}

inline Program read_program(abi::Reader& reader, const abi::ProgramHeader<void>& header) {
    Program program;
    program.hidden = header.hidden_size;
    program.blocks = header.blocks;
    program.states = header.states;
    program.extra = header.extra;
    program.d_products = header.d_products;
    program.operands = header.operands;
    for (int64_t k = 0; k < header.products; ++k) {
        const auto& given = reader.take<abi::ProductHeader<void>>();
        ProductShape shape;
        shape.state = static_cast<int>(given.state);
        shape.operand = read_place(given.operand_buffer, given.operand_part, given.operand_block);
        for (int64_t j = 0; j < given.blocks; ++j) {
            const auto& block = reader.take<abi::ProductBlock<void>>();
            shape.input_block.push_back(static_cast<int>(block.input_block));
            shape.vector.push_back(static_cast<int>(block.vector));
            shape.weights.push_back({.parameter = static_cast<int>(block.parameter),
                                     .start = block.start,
                                     .transposed = block.transposed != 0});
        }
        program.products.push_back(shape);
    }
    program.backward_order = read_indices(reader, header.backward_order);
    program.run = read_code(reader);
    program.train = read_code(reader);
    program.backward = read_code(reader);
    for (int64_t i = 0; i < header.parameters; ++i) {
        const auto& given = reader.take<abi::ParameterShape<void>>();
        program.parameters.push_back({.elements = given.elements, .row = given.row});
    }
    for (int64_t i = 0; i < header.vectors; ++i) {
        const auto& given = reader.take<abi::VectorSource<void>>();
        program.vectors.push_back(
            {.parameter = static_cast<int>(given.parameter), .start = given.start, .single = given.single != 0});
    }
    program.vector_sums = read_lists(reader, header.vector_sums);
    for (int64_t i = 0; i < header.input_vectors; ++i) {
        const auto& given = reader.take<abi::InputVector<void>>();
        program.input_vectors.push_back({static_cast<int>(given.block), static_cast<int>(given.vector)});
    }
    for (int64_t i = 0; i < header.weight_gradients; ++i) {
        const auto& given = reader.take<abi::WeightGradient<void>>();
        program.weight_gradients.push_back({.product = static_cast<int>(given.product),
                                            .gradient = read_place(given.buffer, given.part, given.block),
                                            .blocks = static_cast<int>(given.blocks),
                                            .weight = {.parameter = static_cast<int>(given.parameter),
                                                       .start = given.start,
                                                       .transposed = given.transposed != 0}});
    }
    program.input_sums = read_indices(reader, header.input_sums);
    program.vector_gradients = read_lists(reader, header.vector_gradients);
    return program;
}

}  // namespace weft
