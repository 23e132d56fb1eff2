// The program of a small cell for the drivers of this folder.
#pragma once

#include "../../src/weft/engine/core/program.hpp"
#include "small_values.hpp"

// h' = tanh(W_ih x + b_ih + W_hh h), as the compiler of programs would have it.
inline weft::Program tanh_cell(int64_t inputs, int64_t hidden) {
    weft::Program program{};
    program.hidden = hidden;
    program.blocks = program.states = 1;
    weft::ProductShape product{};
    product.state = 0;
    product.input_block = {0};
    product.vector = {-1};
    product.weights = {{2, 0, false}};
    program.products = {product};
    program.parameters = {{hidden * inputs, inputs}, {hidden, hidden}, {hidden * hidden, hidden}};
    program.run.places = {{weft::PRODUCT, 0, 0}, {weft::NEW_STATE, 0, 0}, {weft::OUTPUT, 0, 0}};
    program.run.sums = program.run.registers = 0;
    program.run.whole_rows = false;
    weft::Segment step;
    step.loads = {0};
    step.stores = {1, 2};
    step.used = {0, 1, 2};
    step.instructions = {{weft::Op::tanh, false, 1, 0, 0, 0}, {weft::Op::copy, false, 2, 1, 0, 0}};
    program.run.segments = {weft::Segment{}, step};
    return program;
}
