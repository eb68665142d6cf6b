#include "engine/status/log_questions.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/status/report.hpp"

namespace mv::status {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kLogPatience = 1s, kLogAgain = 250ms;
}  // namespace

void LogQuestions::ask(base::Peer of, uint32_t rank, uint64_t number, Answer answer) {
  const base::Nanos now = clock_.now();
  questions_.emplace(number, Question{of, rank, std::move(answer), now + kLogAgain, now + kLogPatience});
  send(number, of);
}

bool LogQuestions::take(base::Peer from, const wire::Report& report) {
  const auto question = questions_.find(report.number());
  if (question == questions_.end() || question->second.of != from) return false;
  end(report.number(), read_log(report));
  return true;
}

void LogQuestions::send(uint64_t number, base::Peer to) {
  constexpr bool kWhole = false, kJson = false, kLive = false, kLog = true;
  link_.send(to, builder_.finish(wire::Body::Inquire, wire::CreateInquire(builder_.fbb(), number, kWhole, kJson, kLive, kLog)));
}

void LogQuestions::end(uint64_t number, const base::Result<base::LogTail>& told) {
  const Question question = std::move(questions_.extract(number).mapped());
  question.answer(told);
}

base::Nanos LogQuestions::next_deadline() const {
  base::Nanos next = base::kNever;
  for (const auto& [number, question] : questions_) next = std::min({next, question.again, question.until});
  return next;
}

void LogQuestions::tick() {
  const base::Nanos now = clock_.now();
  std::vector<uint64_t> silent;
  for (auto& [number, question] : questions_) {
    if (now >= question.until) silent.push_back(number);
    if (now < question.again) continue;
    question.again = now + kLogAgain;
    send(number, question.of);
  }
  for (const uint64_t number : silent)
    end(number, base::error(MV_ETIMEOUT, "the process of rank {} has not answered within {:g} s", questions_.at(number).rank,
                            base::seconds(kLogPatience)));
}

}  // namespace mv::status
