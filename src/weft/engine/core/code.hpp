// A program as Python hands it over: a flat list of whole numbers, read once into this form (program/build.py).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace weft {

enum Buffer {
    INPUT, GATES, EXTRA, VECTORS, OUTPUT, ROW_MASK, STEP_MASK, STATE, NEW_STATE, PRODUCT, OPERAND, SCRATCH,
    D_OUTPUT, D_STATE, D_NEW_STATE, D_PRODUCT, D_OPERAND, D_INPUT, D_PRODUCTS, OPERANDS, BUFFERS
};

enum class Op : int {
    copy, add, sub, mul, div, maximum, minimum, lt, le, eq, neg, abs, sqrt, rsqrt, exp, log, tanh, sigmoid, relu, mean,
    select, multiply_add, d_tanh, d_sigmoid, accumulate, mean_product
};

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
        for (const Instruction& i : segments[segment].instructions)
            if (i.op == Op::accumulate) return false;
        return true;
    }
};

struct VectorSource {  // H numbers of a parameter, or one for all units
    int parameter;
    int64_t start;
    bool single;
};

struct BlockSource {  // H rows (turned: columns) of a weight
    int parameter;
    int64_t start;
    bool turned;
};

struct ProductShape {
    int state;  // the state that is the operand as it stands, or -1
    std::vector<int> input_block, vector;
    std::vector<BlockSource> weights;
    Place operand;  // where the way back finds the operand of all steps
    int blocks() const { return static_cast<int>(input_block.size()); }
};

// Neighbouring rows (turned: columns) of a weight whose gradient is one product.
struct WeightGradient {
    int product;
    Place gradient;
    int blocks;
    BlockSource weight;
};

struct Parameter {
    int64_t numbers, row;  // how many in all, and in a row
};

struct Program {
    int64_t hidden, blocks, states;
    std::vector<ProductShape> products;
    std::vector<int> back_order;
    Code run, train, back;

    // How the cell's parameters, weight_ih and bias_ih first, come into it, and their gradients out of it.
    std::vector<Parameter> parameters;
    std::vector<VectorSource> vectors;
    std::vector<std::vector<int>> vector_sums;  // further rows of the table of vectors
    std::vector<std::array<int, 2>> input_vectors;  // (block, vector): added to the input's bias
    int64_t extra, d_products, operands;        // blocks a token
    std::vector<WeightGradient> weight_gradients;
    std::vector<int> input_sums;                     // for each input block the sum that is its bias's gradient, or -1
    std::vector<std::vector<int>> vector_gradients;  // for each vector the sums that make up its gradient

    int64_t width() const { return blocks * hidden; }  // of the projected input
    int64_t kept() const { return width() + extra * hidden; }
};

class Reader {
  public:
    explicit Reader(const int64_t* data) : next_(data) {}
    int64_t take() { return *next_++; }
    int number() { return static_cast<int>(take()); }
    std::vector<int> numbers() {
        std::vector<int> found(static_cast<size_t>(take()));
        for (int& n : found) n = number();
        return found;
    }
    std::vector<std::vector<int>> lists() {
        std::vector<std::vector<int>> found(static_cast<size_t>(take()));
        for (std::vector<int>& list : found) list = numbers();
        return found;
    }
    Place place() {
        const int buffer = number(), part = number();
        return {buffer, part, number()};
    }
    BlockSource block() {
        const int parameter = number();
        const int64_t start = take();
        return {parameter, start, take() != 0};
    }
    Code code() {
        Code code;
        const int places = number(), constants = number();
        code.sums = number();
        code.registers = number();
        const int segments = number();
        code.whole_rows = take() != 0;
        for (int i = 0; i < places; ++i) {
            const Place place = this->place();
            if (place.buffer == SCRATCH && place.block >= code.scratch) code.scratch = place.block + 1;
            code.places.push_back(place);
        }
        for (int i = 0; i < constants; ++i) {
            const int64_t bits = take();
            double value;
            std::memcpy(&value, &bits, sizeof value);
            code.constants.push_back(value);
        }
        for (int s = 0; s < segments; ++s) code.segments.push_back(segment(places));
        return code;
    }

  private:
    Segment segment(int places) {
        Segment segment;
        segment.loads = numbers();
        segment.stores = numbers();
        std::vector<bool> seen(static_cast<size_t>(places), false);
        for (const std::vector<int>* some : {&segment.loads, &segment.stores})
            for (int p : *some)
                if (!seen[static_cast<size_t>(p)]) {
                    seen[static_cast<size_t>(p)] = true;
                    segment.used.push_back(p);
                }
        const int count = number();
        for (int i = 0; i < count; ++i) {
            Instruction instruction;
            instruction.op = static_cast<Op>(take());
            instruction.uniform = take() != 0;
            instruction.target = number();
            instruction.a = number();
            instruction.b = number();
            instruction.c = number();
            segment.instructions.push_back(instruction);
        }
        return segment;
    }
    const int64_t* next_;
};

inline Program read_program(const int64_t* data) {
    Reader reader(data);
    Program program;
    program.hidden = reader.take();
    program.blocks = reader.take();
    program.states = reader.take();
    const int products = reader.number();
    for (int k = 0; k < products; ++k) {
        ProductShape shape;
        const int blocks = reader.number();
        shape.state = reader.number();
        for (int j = 0; j < blocks; ++j) {
            shape.input_block.push_back(reader.number());
            shape.vector.push_back(reader.number());
        }
        program.products.push_back(shape);
    }
    program.back_order = reader.numbers();
    program.run = reader.code();
    program.train = reader.code();
    program.back = reader.code();

    program.parameters.resize(static_cast<size_t>(reader.take()));
    for (Parameter& parameter : program.parameters) {
        parameter.numbers = reader.take();
        parameter.row = reader.take();
    }
    program.vectors.resize(static_cast<size_t>(reader.take()));
    for (VectorSource& vector : program.vectors) {
        const BlockSource found = reader.block();
        vector = {found.parameter, found.start, found.turned};
    }
    program.vector_sums = reader.lists();
    program.input_vectors.resize(static_cast<size_t>(reader.take()));
    for (auto& pair : program.input_vectors)
        for (int& number : pair) number = reader.number();
    program.extra = reader.take();
    program.d_products = reader.take();
    program.operands = reader.take();
    for (ProductShape& shape : program.products) {
        for (int j = 0; j < shape.blocks(); ++j) shape.weights.push_back(reader.block());
        shape.operand = reader.place();
    }
    program.weight_gradients.resize(static_cast<size_t>(reader.take()));
    for (WeightGradient& gradient : program.weight_gradients) {
        gradient.product = reader.number();
        gradient.gradient = reader.place();
        gradient.blocks = reader.number();
        gradient.weight = reader.block();
    }
    program.input_sums = reader.numbers();
    program.vector_gradients = reader.lists();
    return program;
}

}  // namespace weft
