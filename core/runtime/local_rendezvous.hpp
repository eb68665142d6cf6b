#pragma once
// Rendezvous: how processes that a launcher started on one machine find rank 0, which listens on any free port. Rank 0
// sends its address and a fresh secret to each process that asks under the name of the job and runs as the same user.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "transport/listener.hpp"

namespace mv::runtime {

struct Meeting {
  std::string address, secret;
};

/// The text that rank 0 sends: "polyverso 1\nADDRESS\nSECRET\n".
std::string write_meeting(const Meeting& meeting);
/// nullopt if the text is not of this form, or was cut off.
std::optional<Meeting> parse_meeting(std::string_view text);

/// Rank 0's side. Answers until it is destroyed: on the loop's thread, before the loop starts, or after it has ended.
class Publication {
 public:
  static base::Result<std::unique_ptr<Publication>> make(transport::Loop& loop, const std::string& name,
                                                         const Meeting& meeting);

 private:
  explicit Publication(std::string text) : text_(std::move(text)) {}
  void answer(transport::Fd asker) const;

  const std::string text_;
  std::unique_ptr<transport::Listener> listener_;
};

/// The side of the other ranks: asks until rank 0 answers. MV_ETIMEOUT, counted from `begun`; MV_EINTR after a signal.
base::Result<Meeting> ask_rank_0(const std::string& name, base::Nanos patience,
                                 std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now());

}  // namespace mv::runtime
