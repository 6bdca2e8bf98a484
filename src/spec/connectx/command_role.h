// The part of each command in the life of an object, and the objects to which its input refers. The
// layouts of this folder declare them; tools/command_roles.py makes the tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/connectx/objects.h"
#include "spec/connectx/opcodes.h"

namespace softhca::spec::connectx {

/// A field of at most 32 bits in a message. The message may be shorter than its structure.
struct NumberField {
  std::uint16_t offset = 0;
  std::uint8_t lo = 0;
  std::uint32_t mask = 0;  ///< 0: no field, which reads as 0

  /// Missing bytes read as zeros.
  std::uint32_t read(std::span<const std::byte> message) const;
  /// @pre the message has the field, and `value` fits it
  void write(std::span<std::byte> message, std::uint32_t value) const;
};

enum class Verb : std::uint8_t {
  kMakes,
  kChanges,
  kReads,
  kEnds,
  kOpen,  ///< about the function, which has no owner
};

struct CommandSubject {
  Verb verb;
  object_kind kind;
  NumberField number;  ///< of the object
  bool in_output;      ///< `number` is a field of the output, not of the input
};

struct CommandRole {
  command_opcode opcode;
  CommandSubject object;
  /// The same for the object that contexts own: the whole, if `object` is a part.
  CommandSubject owned;
  std::uint16_t input;  ///< bytes of the input without its list
  bool with_uid;        ///< the device takes the command from a user context
  bool by_devx;         ///< the kernel passes the command of a program on
};

/// When a reference counts.
enum class When : std::uint8_t { kAlways, kIf, kUnless };

/// An object that a command names, beside its subject.
struct CommandReference {
  command_opcode opcode;
  object_kind kind;
  NumberField number;
  bool or_zero;  ///< 0 is no reference
  When when;     ///< kIf: `condition` is not 0; kUnless: it is 0
  NumberField condition;

  bool counts(std::span<const std::byte> in) const {
    return when == When::kAlways || (condition.read(in) != 0) == (when == When::kIf);
  }
};

/// A field that a command that ends an object has in common with the command that made it.
struct SharedField {
  command_opcode opcode;  ///< of the command that ends the object
  NumberField made;
  NumberField ends;
};

/// Null for a command that has none.
const CommandRole* find_role(command_opcode opcode);
/// The command that ends objects of a kind. Null if there is none.
const CommandRole* find_end(object_kind kind);
std::span<const CommandReference> references_of(command_opcode opcode);
std::span<const SharedField> shared_fields_of(command_opcode opcode);

}  // namespace softhca::spec::connectx
