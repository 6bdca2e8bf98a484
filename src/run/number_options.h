// Checks of the numbers that options take, for Option::transform(). CLI11 itself takes "-3" and ""
// for a number without a sign, the largest number for one beyond it, and nan for a part of any
// range.
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace softhca::run {

/// A decimal number, or a hexadecimal one after 0x. CLI11 would take 010 for octal.
CLI::Validator whole_number(std::uint64_t least = 0, std::uint64_t most = UINT64_MAX);
/// A decimal number, which may have a fraction and an exponent.
CLI::Validator real_number(double least, double most);

}  // namespace softhca::run
