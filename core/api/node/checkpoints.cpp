// MemberNode: saves and loads checkpoints.

#include <filesystem>

#include "api/node/member_node.hpp"
#include "base/log.hpp"

namespace mv::api {

namespace {

/// All processes receive the same path, whatever their working directories.
base::Result<std::string> absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error).lexically_normal();
  if (error) return base::error(MV_ESYSTEM, "{}: {}", path, error.message());
  const std::string text = whole.string();
  return text.size() > 1 && text.ends_with('/') ? text.substr(0, text.size() - 1) : text;
}

}  // namespace

Started MemberNode::save_checkpoint(const std::string& directory, uint64_t keep, const CallOptions& options) {
  if (identity().worker_id < 0)
    return {base::Status(MV_ESTATE, "only workers save checkpoints; this process is only a server"), nullptr};
  const auto path = absolute(directory);
  if (!path.ok()) return {path.status(), nullptr};
  const CallRef call = calls_.make_call(options, true);
  const auto saving = std::make_shared<std::atomic<bool>>(false);
  checkpoint::Client::Request request{false, path.value(), keep, call, [saving] { *saving = true; }};
  transport::Task begin = [this, request] { runtime_.member().checkpoints().begin(request); };
  if (options.mode == Mode::kBlocking) return calls_.start(call, options, std::move(begin));
  // This worker's later changes must not get into the checkpoint, so wait until the servers have their snapshots.
  const auto driven = runtime_.loop().drive_until([&] { return saving->load() || call->done(); }, base::kNever, std::move(begin));
  if (driven == transport::Driven::kInterrupted)
    return {base::Status(MV_EINTR, "a signal interrupted the wait for the other workers; the call continues"), call};
  if (driven != transport::Driven::kDone) return {runtime_.ended(), nullptr};
  return {{}, call};
}

Started MemberNode::load_checkpoint(const std::string& path, const CallOptions& options) {
  if (identity().worker_id < 0)
    return {base::Status(MV_ESTATE, "only workers load checkpoints; this process is only a server"), nullptr};
  const auto whole = absolute(path);
  if (!whole.ok()) return {whole.status(), nullptr};
  const CallRef call = calls_.make_call(options, true);
  checkpoint::Client::Request request{true, whole.value(), 0, call, nullptr};
  return calls_.start(call, options, [this, request] { runtime_.member().checkpoints().begin(request); });
}

void MemberNode::save_by_clock() {
  if (runtime_.settings().checkpoint.empty() || identity().worker_id != 0) return;
  const auto directory = absolute(runtime_.settings().checkpoint);
  if (!directory.ok()) return base::log_error("no checkpoints will be saved: {}", directory.status().text());
  base::log_info("saving a checkpoint to {} every {:.3g} s", directory.value(),
                 base::seconds(runtime_.settings().checkpoint_every));
  runtime_.member().checkpoints().save_every(runtime_.settings().checkpoint_every, directory.value(), runtime_.settings().checkpoint_keep);
}

}  // namespace mv::api
