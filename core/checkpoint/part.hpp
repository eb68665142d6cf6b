#pragma once
// One server's file, a safetensors file: how its header is written and read.
//
//   u64 length of the header, little-endian
//   header: JSON; the name, dtype, shape and place of every tensor, and metadata; padded with spaces
//   data: the tensors, one behind the other
//
// Each table is a tensor of its name for its values, one for each state of its updater and, where it is keyed, one
// for the ids of its rows. The metadata tells which tensor is what, and the checksum of each.

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors.hpp"

namespace mv::checkpoint {

struct PartTable {
  TableEntry entry;
  shard::Range rows;  ///< dense: which rows these are; keyed: only how many
  Tensor values;
  Tensor ids;  ///< keyed tables
  std::vector<Tensor> states;
};

struct Part {
  uint64_t number = 0, server = 0, servers = 1;
  std::vector<PartTable> tables;
  uint64_t data_begin = 0;  ///< in the file
  uint64_t data_bytes = 0;
  uint64_t file_bytes() const { return data_begin + data_bytes; }
  /// All tensors, in their order in the file.
  std::vector<Tensor*> tensors();
  std::vector<const Tensor*> tensors() const;
};

/// Adds a table of so many rows and states; lay_out() gives its tensors their places.
void add_table(Part& part, const TableEntry& entry, const shard::Range& rows, size_t states);
/// Places all tensors. The checksums are still to come, but the header is as long as it will be.
void lay_out(Part& part);
/// The header with its length in front.
std::string write_header(const Part& part);
/// Reads a header, without the length in front, of a file of so many bytes. MV_EINVAL with what is wrong with it. Any
/// text.
base::Result<Part> parse_header(std::string_view header, uint64_t file_bytes);

}  // namespace mv::checkpoint
