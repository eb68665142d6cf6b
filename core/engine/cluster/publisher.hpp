#pragma once
// Sends the members what has changed in the view.

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/cluster/view_log.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// Owns the log of the views, and the time of the next message. Sends View: on the master to all connected members when
/// the view has changed, and again to a member whose Ping shows an old one. With a keeper, every member has the log, as
/// it may be the master one day. Answers Join with the whole view. Loop thread only.
class Publisher {
 public:
  Publisher(const base::Clock& clock, base::Link& link, rpc::Server& server, Roster& roster, Contacts& contacts)
      : clock_(clock), link_(link), server_(server), roster_(roster), contacts_(contacts) {}

  /// This process knows nothing of the views before roster.view().
  void begin();
  /// The view has changed. Sends it to all members, at once or together with the changes that follow soon: when all n
  /// workers end, n views of n members to n of them would take n^3 time. A lost View is sent again when a Ping shows an
  /// old epoch.
  void publish();
  bool is_due() const { return publish_at_ != base::kNever; }
  base::Nanos next_deadline() const { return publish_at_; }
  /// Sends what publish() has put off.
  void send_to_all();
  /// On a master without a keeper: what has changed is to be in the next messages.
  void note_view();
  /// With a keeper: `next` is decided, and follows roster.decided().
  void follow(const View& next) { log_.follow(roster_.decided(), next); }
  /// The number of the last view in the log.
  uint64_t last() const { return log_.last(); }
  /// Sends each connected member what it lacks of this view, the last one of the log.
  void tell_members(const View& view);
  /// This member has the view with the number `has`, and lacks what has changed since.
  void tell_again(base::Peer peer, Contact& contact, uint64_t has);
  /// The whole view, which answers a Join. @param barriers  that the members have passed
  base::Frame whole(View view, uint64_t barriers) {
    view.barriers = barriers;
    return log_.write(builder_, view, 0);
  }
  /// Answers this Join, so that the process knows this view.
  void answer(const rpc::Asked& asked, const View& view, base::Frame whole);

 private:
  base::Nanos between_views() const;

  const base::Clock& clock_;
  base::Link& link_;
  rpc::Server& server_;
  Roster& roster_;
  Contacts& contacts_;
  wire::FrameBuilder builder_;
  ViewLog log_;
  View noted_;  ///< on a master without a keeper: the last view of log_. With a keeper that is the decided one
  base::Nanos published_{0}, publish_at_ = base::kNever;  ///< the last message to all, and the one that is due
};

}  // namespace mv::cluster
