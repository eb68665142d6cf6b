#pragma once
// The inputs that a part's server has passed to its back-up, in memory that both processes map.
//
// A back-up on the same machine need not run before an input is safe: memory that it maps outlives the server's process,
// however that ends. The server therefore writes small inputs to a journal as well, and acknowledges them at once. Their
// messages may leave later, many together, so the back-up is not woken for each. When the back-up takes over, it first
// processes what is in the journal and has not come as a message.
//
// Each side writes only its own memory. The server's has the journal, the back-up's has a gate. The back-up closes the
// gate before it reads the journal for the last time. The server appends, and counts the input as held only if the gate
// is still open afterwards. There is a full fence between the two on both sides (Dekker's pattern, base/memory_fence.hpp).
// So a server that was stopped, and has been replaced meanwhile, acknowledges nothing that its successor does not have.
// tests/models/journal.pml is the model.
//
// The journal is a ring. A record is contiguous and starts on a multiple of kRecordUnit; its number is that of the input
// (Replicate.number), and 0 in a record that only fills the ring up to its end. The server overwrites a record only after
// the back-up has acknowledged its input as processed.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "wire/frame.hpp"

namespace mv::replica {

/// The journal's first page, in the server's memory. Positions count bytes since the beginning.
struct JournalPage {
  static constexpr uint64_t kMagic = 0x4d56'4a4f'5552'0001;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> id;                 ///< another one for each journal of a server
  alignas(64) std::atomic<uint64_t> begin;  ///< of the oldest record
  alignas(64) std::atomic<uint64_t> end;    ///< of the newest record
};
/// The only page of the back-up's memory.
struct GatePage {
  static constexpr uint64_t kMagic = 0x4d56'4741'5445'0001;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> id;  ///< of the journal that the back-up reads
  std::atomic<uint64_t> is_closed;
};

/// The server's side. Loop thread only.
class JournalWriter {
 public:
  /// @param backup  the process that will read it  @param id  see JournalPage::id. MV_ENOMEM, MV_ESYSTEM
  static base::Result<std::shared_ptr<JournalWriter>> make(base::Peer backup, uint64_t id);

  base::Peer backup() const { return backup_; }
  /// For the back-up, which maps it.
  const std::shared_ptr<base::SharedMemory>& memory() const { return memory_; }
  /// Sets the back-up's gate. False if it is none, or that of another journal.
  bool set_gate(std::shared_ptr<base::SharedMemory> gate);
  bool has_gate() const { return gate_ != nullptr; }
  /// What was appended so far is held by the back-up. False also before there is a gate.
  bool is_open() const { return gate_ != nullptr && gate_page().is_closed.load(std::memory_order_acquire) == 0; }
  /// Writes an input. False if it is not held by the back-up: the journal is not open, or has no room for it.
  bool append(uint64_t number, const base::Frame& frame);
  /// The back-up has processed the inputs up to this number.
  void release(uint64_t number) { released_ = number; }

 private:
  JournalWriter(base::Peer backup, uint64_t id, std::shared_ptr<base::SharedMemory> memory);
  JournalPage& page() const { return *reinterpret_cast<JournalPage*>(memory_->data()); }
  const GatePage& gate_page() const { return *reinterpret_cast<const GatePage*>(gate_->data()); }
  std::byte* reserve(size_t bytes);
  void drop_released();

  const base::Peer backup_;
  const uint64_t id_;
  const std::shared_ptr<base::SharedMemory> memory_;
  std::shared_ptr<base::SharedMemory> gate_;
  uint64_t begin_ = 0, end_ = 0;  ///< as in the page
  uint64_t released_ = 0;
};

/// The back-up's side. Loop thread only.
class JournalReader {
 public:
  /// @param server  the process whose journal it is. MV_ENOMEM, MV_ESYSTEM, MV_EPROTOCOL
  static base::Result<std::shared_ptr<JournalReader>> make(base::Peer server, std::shared_ptr<base::SharedMemory> journal);
  /// Closes the gate, because later entries would not be read.
  ~JournalReader() { close_gate(); }
  JournalReader(const JournalReader&) = delete;
  JournalReader& operator=(const JournalReader&) = delete;

  base::Peer server() const { return server_; }
  uint64_t id() const { return id_; }
  /// For the server, which maps it.
  const std::shared_ptr<base::SharedMemory>& gate() const { return gate_; }

  /// One input. The bytes belong to the reader.
  struct Record {
    uint64_t number;
    const wire::Message* message;
    std::span<const std::byte> payload;
  };
  /// Closes the gate, and returns the inputs after number `after` that were held when it was closed, in their order. What follows a damaged
  /// record is missing. May be called again: the records of the last call are then void.
  std::vector<Record> close(uint64_t after);

 private:
  JournalReader(base::Peer server, uint64_t id, std::shared_ptr<base::SharedMemory> journal, std::shared_ptr<base::SharedMemory> gate)
      : server_(server), id_(id), journal_(std::move(journal)), gate_(std::move(gate)) {}
  void close_gate();
  std::span<const std::byte> copy_ring(uint64_t* begin);

  const base::Peer server_;
  const uint64_t id_;
  const std::shared_ptr<base::SharedMemory> journal_, gate_;
  std::vector<std::byte> copy_;
};

/// Passes memory between the processes of one machine.
class HostMemory {
 public:
  using Given = std::function<void(std::shared_ptr<base::SharedMemory>)>;
  virtual ~HostMemory() = default;
  /// Requests the memory that `peer` keeps under this number: see Parts::memory_for(). `given` receives it on the loop, now or later; null if
  /// there is none, or if the peer is on another machine.
  virtual void ask(base::Peer peer, uint64_t number, Given given) = 0;
};

}  // namespace mv::replica
