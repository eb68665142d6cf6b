#pragma once
// DiskStorage: checkpoints on disk, written and read by a thread of its own.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/checkpoint/storage.hpp"
#include "transport/loop/loop.hpp"

namespace mv::runtime {

/// Runs one job after another. The first job starts the thread; if that fails, the job fails. Called on the
/// loop, reports on the loop.
class DiskStorage final : public checkpoint::Storage {
 public:
  explicit DiskStorage(transport::Loop& loop) : loop_(loop) {}
  ~DiskStorage() override { stop(); }

  /// Gives up the job in progress and waits for the thread; reports nothing afterwards. Idempotent. Not on the loop.
  void stop();

  void begin(const std::string& directory, Told<checkpoint::CheckpointPath> told) override;
  void take_over(const std::string& path, Told<bool> told) override;
  void complete(const std::string& path, checkpoint::Manifest manifest, uint64_t keep, Done done) override;
  void discard(const std::string& path, Done done) override;
  void find(const std::string& path, Told<Found> told) override;
  void write(NewFile part, GivenUp given_up, Told<checkpoint::FileEntry> told) override;
  void check(const std::string& path, checkpoint::Share share, Told<checkpoint::Manifest> told) override;
  void restore(const std::string& path, std::vector<Target> targets, Done done) override;
  void move(std::vector<Move> moves, Done done) override;

 private:
  template <typename Tell, typename Work>
  void start(Tell told, Work work);
  base::Status enqueue(std::function<void()> job);
  base::Status start_thread();
  void run();
  base::Status check_claim(const std::string& path) const;

  transport::Loop& loop_;
  const GivenUp stopping_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::function<void()>> jobs_;  ///< under mutex_
  GivenUp writing_;                         ///< under mutex_: of the file being written
  std::shared_ptr<checkpoint::Claim> claim_;  ///< on the checkpoint that server 0 has begun; used by the thread only
  std::thread thread_;
};

}  // namespace mv::runtime
