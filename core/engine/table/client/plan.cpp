#include "engine/table/client/plan.hpp"

#include <algorithm>
#include <numeric>

#include "codec/codec.hpp"

namespace mv::table {

namespace {

/// Elements first .. first + count - 1 of a part, cut at its stripes.
void add_elements(std::vector<ChunkRange>& pieces, const shard::Spec& spec, size_t server, uint64_t first, uint64_t count, uint64_t offset) {
  const uint64_t stripe = shard::stripe_elements(spec);
  for (uint64_t done = 0; done < count;) {
    const uint64_t from = first + done;
    const uint64_t share = std::min(count - done, (from / stripe + 1) * stripe - from);
    pieces.push_back({server, from, share, offset + done, {}, {}, 1});
    done += share;
  }
}

/// Sets the numbers of this server's pieces, which are the last ones so far, and their count.
void count_pieces(std::vector<ChunkRange>& pieces, size_t server) {
  const auto mine = std::find_if(pieces.begin(), pieces.end(), [&](const ChunkRange& piece) { return piece.server == server; });
  for (auto piece = mine; piece != pieces.end(); ++piece) {
    piece->of = static_cast<uint32_t>(pieces.end() - mine);
    piece->number = static_cast<uint32_t>(piece - mine);
  }
}

uint64_t place(std::span<ChunkRange> pieces, const codec::Codec& codec, uint64_t aligned) {
  uint64_t end = 0;
  for (ChunkRange& piece : pieces) {
    piece.encoded_at = (end + aligned - 1) / aligned * aligned;
    end = piece.encoded_at + codec.encoded_bytes(piece.count);
  }
  return end;
}

}  // namespace

std::vector<ChunkRange> plan_all(const shard::Spec& spec, size_t servers, size_t skip) {
  std::vector<ChunkRange> pieces;
  for (size_t server = 0; server < servers; ++server) {
    const shard::Range part = shard::part_of(spec, servers, server);
    if (server == skip || part.count == 0) continue;
    add_elements(pieces, spec, server, 0, part.count * spec.cols, part.first * spec.cols);
    count_pieces(pieces, server);
  }
  return pieces;
}

uint64_t place_encoded(std::span<ChunkRange> pieces, const codec::Codec& codec) { return place(pieces, codec, 1); }

uint64_t place_answers(std::span<ChunkRange> pieces, const codec::Codec& codec) { return place(pieces, codec, 16); }

std::vector<ChunkRange> plan_rows(const shard::Spec& spec, size_t servers, std::span<const int64_t> rows, size_t skip, bool replaces) {
  std::vector<std::vector<uint64_t>> of_server(servers);
  if (servers == 1) {
    of_server.front().resize(rows.size());
    std::iota(of_server.front().begin(), of_server.front().end(), uint64_t{0});
  } else {
    for (uint64_t i = 0; i < rows.size(); ++i) of_server[shard::server_of(spec, servers, rows[i])].push_back(i);
  }

  const bool rows_fit = spec.row_bytes() <= shard::stripe_bytes(spec);
  const size_t most = std::max<uint64_t>(1, shard::stripe_bytes(spec) / (spec.row_bytes() + sizeof(int64_t)));
  std::vector<ChunkRange> pieces;
  for (size_t server = 0; server < servers; ++server) {
    if (server == skip || !shard::has_part(spec, servers, server)) continue;
    const int64_t first_row = shard::first_row(spec, servers, server);
    const auto& mine = of_server[server];
    // Elements don't tell a server that all other rows are to be replaced. An empty piece announces that first.
    if (mine.empty() || (!rows_fit && replaces)) pieces.push_back({server, 0, 0, 0, {}, {}, 1});
    for (size_t begin = 0; begin < mine.size();) {
      if (!rows_fit) {  // longer than a message should be: each row as elements
        const auto row = static_cast<uint64_t>(rows[mine[begin]] - first_row);
        add_elements(pieces, spec, server, row * spec.cols, spec.cols, mine[begin] * spec.cols);
        ++begin;
        continue;
      }
      ChunkRange piece{server, 0, 0, 0, {}, {}, 1};
      const size_t end = std::min(mine.size(), begin + most);
      piece.from.assign(mine.begin() + static_cast<ptrdiff_t>(begin), mine.begin() + static_cast<ptrdiff_t>(end));
      piece.ids.reserve(end - begin);
      for (; begin < end; ++begin) piece.ids.push_back(rows[mine[begin]] - first_row);
      pieces.push_back(std::move(piece));
    }
    count_pieces(pieces, server);
  }
  return pieces;
}

}  // namespace mv::table
