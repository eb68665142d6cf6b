#include "node/shared_group.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "node/random.hpp"

namespace mv::node {

namespace {

using collective::Kind;
using collective::Operation;

/// What a rank tells the others at the opening: whether it would, and where its memory is. The number lies in the memory, too.
struct Card {
  uint64_t willing, proof, file;
  int64_t process, descriptor;
};

Operation in_bytes(Kind kind, void* values, uint64_t count, mv_dtype dtype) {
  Operation operation;
  operation.kind = kind;
  operation.out.push_back({static_cast<std::byte*>(values), count, dtype});
  return operation;
}

/// The others' memory, by rank; null where it is not seen.
std::vector<onehost::Memory> see(const std::vector<Card>& cards, size_t own, const onehost::Memory& mine) {
  std::vector<onehost::Memory> memory(cards.size());
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (rank == own) {
      memory[rank] = mine;
    } else if (card.willing != 0) {
      auto seen = onehost::open_of(static_cast<int32_t>(card.process), static_cast<int>(card.descriptor), card.file, onehost::Arena::bytes(cards.size()));
      if (!seen.ok()) base::log_debug("a group's rank {} shows no memory: {}", rank, seen.status().text());
      const bool proven = seen.ok() && onehost::Arena(seen.value(), cards.size()).words().proof.load() == card.proof;
      if (proven) memory[rank] = std::move(seen).value();
    }
  }
  return memory;
}

}  // namespace

// ------------------------------------------------------------ opening

base::Result<GroupRef> SharedGroup::over(MemberNode& node, base::Result<GroupRef> opened, const CallOptions& options) {
  if (!opened.ok()) return opened;
  const auto messages = std::static_pointer_cast<MessageGroup>(opened.value());
  const size_t ranks = messages->members().size();
  const auto rank = static_cast<size_t>(messages->engine()->setting().rank);
  if (ranks < 2 || ranks > onehost::kMostRanks) return opened;
  onehost::Memory mine;
  if (node.settings().io != "tcp" && node.settings().faults.empty()) {
    auto made = base::SharedMemory::make("polyverso-group", onehost::Arena::bytes(ranks));
    if (made.ok()) mine = std::move(made).value();
  }
  Card card{mine != nullptr, random_peer(), 0, getpid(), -1};
  if (mine != nullptr) {
    card.descriptor = mine->fd();
    card.file = onehost::file_of(mine->fd());
    onehost::Arena(mine, ranks).words().proof.store(card.proof);
  }
  std::vector<Card> cards(ranks);
  Operation tell = in_bytes(Kind::kAllgather, cards.data(), ranks * sizeof(Card), MV_RAW);
  tell.in.push_back(reinterpret_cast<const std::byte*>(&card));
  if (Started told = messages->run(std::move(tell), blocking(options)); !told.status.ok()) return told.status;
  const std::vector<onehost::Memory> memory = see(cards, rank, mine);
  int64_t all_seen = std::count(memory.begin(), memory.end(), nullptr) == 0;
  Operation agree = in_bytes(Kind::kAllreduce, &all_seen, 1, MV_I64);
  agree.reduction = math::Reduction::kMin;
  if (Started agreed = messages->run(std::move(agree), blocking(options)); !agreed.status.ok()) return agreed.status;
  messages->count_from_here();
  if (all_seen == 0) return opened;
  return GroupRef(std::make_shared<SharedGroup>(node, messages, memory));
}

SharedGroup::SharedGroup(MemberNode& node, std::shared_ptr<MessageGroup> messages, const std::vector<onehost::Memory>& memory)
    : node_(node), messages_(std::move(messages)),
      seat_(std::make_shared<onehost::Seat>(static_cast<size_t>(messages_->engine()->setting().rank), memory, messages_->engine()->members().names,
                                            std::chrono::microseconds(node.settings().spin_us))) {
  const auto broken = [weak = std::weak_ptr(seat_)](const base::Status& why) {
    if (const auto seat = weak.lock()) seat->end(why);
  };
  const auto left = [weak = std::weak_ptr(seat_)](uint32_t rank) {
    if (const auto seat = weak.lock()) seat->hear_left(rank);
  };
  const auto look = [weak = std::weak_ptr(seat_)] {
    const auto seat = weak.lock();
    if (seat == nullptr) return collective::Group::Elsewhere{};
    const onehost::Seat::Sleep sleep = seat->asleep();
    return collective::Group::Elsewhere{seat->operations(), collective::kind_name(sleep.kind), sleep.on, sleep.has_come, sleep.since};
  };
  node_.on_loop([&] { messages_->engine()->watch({broken, left, look}); });
}

SharedGroup::~SharedGroup() {
  seat_->leave();
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

GroupInfo SharedGroup::info() {
  GroupInfo info = messages_->info();
  info.road = "shm";
  info.operations = seat_->operations();
  if (info.broken.ok()) info.broken = seat_->broken();
  return info;
}

base::Result<GroupRef> SharedGroup::shrink(const CallOptions& options) {
  seat_->give_up(base::Status(MV_ESTATE, "the group was shrunk"));
  return over(node_, messages_->shrink(options), options);
}

base::Status SharedGroup::close() {
  seat_->leave();
  return messages_->close();
}

// ------------------------------------------------------------ operations

/// One operation at a time, in the order in which they were asked for.
class SharedGroup::Turn {
 public:
  explicit Turn(SharedGroup& group) : group_(group) {
    std::unique_lock lock(group_.mutex_);
    group_.changed_.wait(lock, [&] { return !group_.taken_ && group_.jobs_.empty(); });
    group_.taken_ = true;
  }
  ~Turn() { group_.end_turn(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  SharedGroup& group_;
};

void SharedGroup::end_turn() {
  {
    std::lock_guard lock(mutex_);
    taken_ = false;
  }
  changed_.notify_all();
}

/// A group that an operation has broken is so for those who ask by messages, too.
base::Status SharedGroup::broken_by(base::Status status) {
  if (status.ok() || seat_->broken().ok()) return status;
  node_.loop().post([group = messages_->engine(), status] { group->break_off(status, true); });
  return base::error(status.code(), "{}; the group is broken: {}", status.text(), collective::kAfterBreak);
}

std::shared_ptr<Call> SharedGroup::make_call(const CallOptions& options) {
  return std::make_shared<Call>(Call::Kind::kCollective, node_.finished(), options);
}

base::Status SharedGroup::carry_out(const Operation& operation, base::Nanos deadline) {
  base::Status status = seat_->begin(operation);
  return status.ok() ? seat_->finish(deadline) : status;
}

Started SharedGroup::run(Operation operation, const CallOptions& options) {
  if (base::Status wrong = check_operation(operation, static_cast<int64_t>(members().size())); !wrong.ok()) return {std::move(wrong), nullptr};
  const base::Nanos until = node_.deadline(options, true);
  std::unique_lock lock(mutex_);
  if (options.mode != Mode::kBlocking || taken_ || !jobs_.empty()) {
    Job job{std::move(operation), until, make_call(options), false};
    const auto call = job.call;
    leave_to_thread(std::move(lock), std::move(job));
    if (options.mode != Mode::kBlocking) return {{}, call};
    return node_.start(call, options, [] {});
  }
  taken_ = true;
  lock.unlock();
  base::Status status = carry_out(operation, until);
  if (status.code() != MV_EINTR) {
    end_turn();
    return {broken_by(std::move(status)), nullptr};
  }
  if (!options.keep_on_interrupt) {
    seat_->give_up(base::Status(MV_EINTR, "a signal interrupted an operation of the group, which has ended it"));
    end_turn();
    return {broken_by(seat_->broken()), nullptr};
  }
  Job job{std::move(operation), until, make_call(options), true};
  const auto call = job.call;
  lock.lock();
  taken_ = false;
  leave_to_thread(std::move(lock), std::move(job));
  return {std::move(status), call};
}

/// With the lock of the queue.
Started SharedGroup::leave_to_thread(std::unique_lock<std::mutex> lock, Job job) {
  job.call->set_withdrawal([this, weak = std::weak_ptr(job.call)](mv_status code) {
    if (const auto call = weak.lock()) withdraw(call, code);
  });
  const auto call = job.call;
  job.begun ? jobs_.push_front(std::move(job)) : jobs_.push_back(std::move(job));
  if (!thread_.joinable()) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads that wait
    thread_ = std::thread([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  lock.unlock();
  changed_.notify_all();
  return {{}, call};
}

void SharedGroup::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return (!jobs_.empty() && !taken_) || (ends_ && jobs_.empty()); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    taken_ = true;  // and the job is gone from the queue, so that who comes next sees the one or the other
    jobs_.pop_front();
    lock.unlock();
    base::Status status = job.begun ? seat_->finish(job.deadline) : carry_out(job.operation, job.deadline);
    while (status.code() == MV_EINTR && seat_->broken().ok()) status = seat_->finish(job.deadline);
    job.call->complete(broken_by(std::move(status)));
    node_.wake();
    lock.lock();
    taken_ = false;
    changed_.notify_all();
  }
}

/// The call is over when this returns, and the group with it: the others count on this rank.
void SharedGroup::withdraw(const std::shared_ptr<Call>& call, mv_status code) {
  if (call->done()) return;
  seat_->give_up(base::error(code, "an operation of the group was withdrawn, which has ended it"));
  while (!call->done()) std::this_thread::yield();
}

base::Result<collective::Shape> SharedGroup::drain(const CallOptions& options) {
  const Turn turn(*this);
  auto shape = seat_->drain(node_.deadline(options, true));
  const bool again = shape.ok() || shape.status().code() == MV_EINTR || shape.status().code() == MV_ETIMEOUT;
  if (!again) return broken_by(shape.status());
  return shape;
}

/// All say that it begins, and what its shape is, as of any other operation; the values go by messages.
base::Result<CustomReductionRef> SharedGroup::custom(Operation operation, const CallOptions& options) {
  if (base::Status wrong = check_operation(operation, static_cast<int64_t>(members().size())); !wrong.ok()) return wrong;
  const Turn turn(*this);
  base::Status status = carry_out(operation, node_.deadline(options, true));
  if (status.code() == MV_EINTR) {
    seat_->give_up(base::Status(MV_EINTR, "a signal interrupted an operation of the group, which has ended it"));
    status = seat_->broken();
  }
  if (!status.ok()) return broken_by(std::move(status));
  return messages_->custom(std::move(operation), options);
}

}  // namespace mv::node
