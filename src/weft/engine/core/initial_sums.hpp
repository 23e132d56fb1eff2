// What the sums of a step's products begin with: a block of the projected input, a vector, or zero.
//
// Where no panel holds parts of two blocks, the kernel reads them where they are; else they are copied to the product's
// memory first.
#pragma once

#include "interpreter.hpp"

namespace weft {

template <typename T>
class InitialSums {
  public:
    explicit InitialSums(const Program& program)
        : program_(program), H_(program.hidden), in_place_(program.hidden % kPanel<T> == 0) {}

    // Of product k, for the panel of column n of all rows. `input` is block 0 of the projected input, `product` the
    // memory of the product, which begin() has filled.
    Where<const T> of(size_t k, int64_t n, const Where<T>& input, const T* vectors, const Where<T>& product) const {
        if (!in_place_) return {product.base + n, product.stride, nullptr};
        return of_block(program_.products[k], static_cast<size_t>(n / H_), n % H_, input, vectors);
    }

    // Fills the memory of product k for some rows, unless the kernel reads the sums in place.
    void begin(size_t k, int64_t rows, const Where<T>& input, const T* vectors, const Where<T>& product) const {
        if (in_place_) return;
        const ProductShape& shape = program_.products[k];
        for (int64_t r = 0; r < rows; ++r) {
            T* to = product.row(r);
            for (size_t j = 0; j < shape.input_block.size(); ++j, to += H_) {
                const Where<const T> from = of_block(shape, j, 0, input, vectors);
                if (from.base)
                    std::memcpy(to, from.row(r), static_cast<size_t>(H_) * sizeof(T));
                else
                    std::fill_n(to, H_, T(0));
            }
        }
    }

  private:
    Where<const T> of_block(const ProductShape& shape, size_t j, int64_t column, const Where<T>& input,
                            const T* vectors) const {
        if (shape.input_block[j] >= 0)
            return {input.base + shape.input_block[j] * H_ + column, input.stride, input.index};
        if (shape.vector[j] >= 0) return {vectors + shape.vector[j] * H_ + column, 0, nullptr};
        return {};
    }

    const Program& program_;
    const int64_t H_;
    const bool in_place_;
};

}  // namespace weft
