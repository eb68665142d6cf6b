#pragma once
// Asks members for the last lines of their logs.

#include <functional>
#include <map>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "wire/frame.hpp"

namespace mv::status {

/// Questions without an answer yet. As all messages of the status, they are repeated until a short deadline. Loop thread
/// only.
class LogQuestions {
 public:
  using Answer = std::function<void(const base::Result<base::LogTail>& told)>;

  LogQuestions(const base::Clock& clock, base::Link& link) : clock_(clock), link_(link) {}

  /// Calls `answer` once. number: unique among all status messages of this node.
  void ask(base::Peer of, uint32_t rank, uint64_t number, Answer answer);
  /// False if this is not the answer to a question here.
  bool take(base::Peer from, const wire::Report& report);

  base::Nanos next_deadline() const;
  void tick();

 private:
  struct Question {
    base::Peer of;
    uint32_t rank;
    Answer answer;
    base::Nanos again, until;
  };
  void send(uint64_t number, base::Peer to);
  void end(uint64_t number, const base::Result<base::LogTail>& told);

  const base::Clock& clock_;
  base::Link& link_;
  wire::FrameBuilder builder_;
  std::map<uint64_t, Question> questions_;  ///< by number
};

}  // namespace mv::status
