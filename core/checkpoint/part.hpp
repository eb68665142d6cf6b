#pragma once
// The header of one server's file, which is a safetensors file.
//
//   u64 length of the header, little-endian
//   header: JSON with name, dtype, shape and place of every tensor, and metadata; padded with spaces
//   data: the tensors without gaps
//
// A table consists of a tensor for its values, one for each state of its updater and, if it is keyed, one for the ids
// of its rows. The metadata contain the purpose and the checksum of each tensor.

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors.hpp"

namespace mv::checkpoint {

struct PartTable {
  TableEntry entry;
  shard::Range rows;  ///< dense: the rows of this part; keyed: only their number
  Tensor values;
  Tensor ids;  ///< keyed tables
  std::vector<Tensor> states;
};

struct PartLayout {
  uint64_t number = 0, server = 0, servers = 1;
  std::vector<PartTable> tables;
  uint64_t data_begin = 0;  ///< in the file
  uint64_t data_bytes = 0;
  uint64_t file_bytes() const { return data_begin + data_bytes; }
  /// All tensors, in their order in the file.
  std::vector<Tensor*> tensors();
  std::vector<const Tensor*> tensors() const;
};

/// Adds a table with these rows and this number of states. lay_out() assigns the places of its tensors.
void add_table(PartLayout& part, const TableEntry& entry, const shard::Range& rows, size_t states);
/// Assigns the places of all tensors. The header has its final length, but the checksums are filled in later.
void lay_out(PartLayout& part);
/// The header with its length in front.
std::string write_header(const PartLayout& part);
/// Parses an untrusted header, without the length in front, of a file of `file_bytes` bytes. MV_EINVAL with the reason
/// if it is invalid.
base::Result<PartLayout> parse_header(std::string_view header, uint64_t file_bytes);

}  // namespace mv::checkpoint
