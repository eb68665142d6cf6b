// Teams: all-reduces by MPI itself, over a communicator for each team.
//
// MPI can make a communicator of some processes only in a call that blocks, so a thread of its own makes it, without the
// mutex. That takes MPI_THREAD_MULTIPLE.

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "transport/fabric/mpi/domain.hpp"

namespace mv::transport::mpi {

namespace {

MPI_Datatype type_of(mv_dtype dtype) {
  switch (dtype) {
    case MV_F32: return MPI_FLOAT;
    case MV_F64: return MPI_DOUBLE;
    case MV_I64: return MPI_INT64_T;
    case MV_I32: return MPI_INT32_T;
    case MV_U8: return MPI_UINT8_T;
    case MV_I8: return MPI_INT8_T;
    default: return MPI_DATATYPE_NULL;
  }
}

MPI_Op operation_of(int32_t reduction) {
  switch (reduction) {
    case MV_REDUCE_SUM: return MPI_SUM;
    case MV_REDUCE_PROD: return MPI_PROD;
    case MV_REDUCE_MIN: return MPI_MIN;
    case MV_REDUCE_MAX: return MPI_MAX;
    default: return MPI_OP_NULL;
  }
}

/// The communicator of a team; MPI_COMM_NULL if MPI refuses. Blocks until all of the team are here.
MPI_Comm make_communicator(MPI_Comm all, const std::vector<int>& ranks, int tag, std::string& why) {
  MPI_Group everybody = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_group(all, &everybody);
  int code = MPI_Group_incl(everybody, static_cast<int>(ranks.size()), ranks.data(), &some);
  if (code == MPI_SUCCESS) code = MPI_Comm_create_group(all, some, tag, &made);
  if (code != MPI_SUCCESS) why = "MPI_Comm_create_group: " + text_of(code);
  if (made != MPI_COMM_NULL) MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
  MPI_Group_free(&everybody);
  return made;
}

/// Deletes a team that nobody needs any more.
void drop(Domain& in, mv_fabric_team team) {
  if (!team->is_disbanded || team->is_in_the_making || team->under_way > 0) return;
  if (team->communicator != MPI_COMM_NULL && works(in)) MPI_Comm_free(&team->communicator);
  delete team;
}

/// The thread that makes a team.
void make(mv_fabric_team team) {
  Domain& in = domain();
  std::string why;
  const MPI_Comm made = in.ended ? MPI_COMM_NULL : make_communicator(in.communicator, team->ranks, team->tag, why);
  {
    const std::lock_guard lock(in.mutex);
    team->communicator = made;
    team->is_in_the_making = false;
    if (team->is_disbanded) {
      drop(in, team);
    } else {
      if (why.empty()) why = "MPI has been finalized";
      team->fabric->why = why;
      add_event(team->fabric, event_of(MV_FABRIC_TEAMED, made != MPI_COMM_NULL ? MV_OK : MV_ESYSTEM, team->fabric->why.c_str(), team->user));
    }
  }
  --in.teams_in_the_making;
}

}  // namespace

mv_status make_team(Domain& in, mv_fabric fabric, std::vector<int> ranks, uint64_t key, void* user, mv_fabric_team* made) {
  if (!works(in)) return fail(MV_EUNREACHABLE, in.broken);
  if (in.level != MPI_THREAD_MULTIPLE)
    return fail(MV_ENOSYS, std::string("MPI has only ") + name_of_level(in.level) + " here, and its all-reduces take MPI_THREAD_MULTIPLE");
  auto team = std::make_unique<mv_fabric_team_object>();
  team->fabric = fabric;
  team->user = user;
  team->ranks = std::move(ranks);
  team->tag = static_cast<int>(key % static_cast<uint64_t>(in.most_tag));
  sigset_t all, before;  // signals are the program's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  ++in.teams_in_the_making;
  mv_status status = MV_OK;
  try {
    std::thread(make, team.get()).detach();
    *made = team.release();
  } catch (const std::system_error& error) {
    --in.teams_in_the_making;
    status = fail(MV_ESYSTEM, std::string("can't start a thread: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void disband_team(Domain& in, mv_fabric_team team) {
  team->is_disbanded = true;
  for (Active& active : in.actives)
    if (active.what == Active::What::kReduce && active.team == team) active.fabric = nullptr;
  std::erase_if(team->fabric->events, [&](const mv_fabric_event& event) { return event.kind == MV_FABRIC_TEAMED && event.user == team->user; });
  drop(in, team);
}

mv_status begin_reduce(Domain& in, mv_fabric_team team, void* values, uint64_t count, mv_dtype dtype, int32_t reduction, void* user) {
  if (!works(in)) return fail(MV_EUNREACHABLE, in.broken);
  const MPI_Datatype type = type_of(dtype);
  const MPI_Op operation = operation_of(reduction);
  if (type == MPI_DATATYPE_NULL || operation == MPI_OP_NULL) return fail(MV_EDTYPE, "MPI does not reduce such values");
  in.requests.reserve(in.requests.size() + 1);
  in.actives.reserve(in.actives.size() + 1);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Iallreduce(MPI_IN_PLACE, values, static_cast<int>(count), type, operation, team->communicator, &request);
  if (code != MPI_SUCCESS) return fail(MV_ESYSTEM, "MPI_Iallreduce: " + text_of(code));
  Active active{Active::What::kReduce, team->fabric, user, nullptr};
  active.team = team;
  active.values = values;
  start(in, std::move(active), request);
  ++team->under_way;
  team->fabric->last_news = Clock::now();
  return MV_OK;
}

void end_reduce(Domain& in, mv_fabric_team team) {
  --team->under_way;
  drop(in, team);
}

}  // namespace mv::transport::mpi
