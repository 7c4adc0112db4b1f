#include "comm/mpi_group.hpp"

#include <limits>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace shardmark::comm {
namespace {

int mpi_count(std::int64_t bytes) {
  SM_CHECK(bytes >= 0 && bytes <= std::numeric_limits<int>::max(), "a message exceeds what one MPI call takes");
  return static_cast<int>(bytes);
}

}  // namespace

CommHandle::~CommHandle() {
  if (communicator_ == MPI_COMM_NULL || world_->failed() || std::uncaught_exceptions() > 0) {
    return;
  }
  if (MPI_Comm_free(&communicator_) != MPI_SUCCESS) {
    base::log_error("MPI_Comm_free failed");
  }
}

CommHandle CommHandle::duplicate(world::World& world) {
  world.barrier();  // MPI_Comm_dup has no deadline: all are here before it starts
  MPI_Comm made = MPI_COMM_NULL;
  auto& handles = world.handles();
  handles.check(MPI_Comm_dup(handles.compute, &made), "MPI_Comm_dup");
  CommHandle handle(world, made);
  handles.check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return handle;
}

CommHandle CommHandle::split(int color) const {
  SM_CHECK(color >= 0, "a color is a number from 0 up");
  auto& handles = world_->handles();
  MPI_Request request = MPI_REQUEST_NULL;
  handles.check(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
  const double started_s = base::now_s();
  int arrived = 0;
  for (std::int64_t turn = 0; arrived == 0; ++turn) {
    handles.check(MPI_Test(&request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0) {
      world_->poll(turn, started_s, {.operation = "split", .purpose = "control"});
    }
  }
  MPI_Comm made = MPI_COMM_NULL;
  handles.check(MPI_Comm_split(communicator_, color, 0, &made), "MPI_Comm_split");
  CommHandle handle(*world_, made);
  handles.check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return handle;
}

MpiGroup::MpiGroup(CommHandle handle) : handle_(std::move(handle)) {
  check(MPI_Comm_rank(handle_.get(), &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(handle_.get(), &size_), "MPI_Comm_size");
}

void MpiGroup::send(const void* data, std::int64_t bytes, int peer, int tag, std::vector<MPI_Request>& requests) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, mpi_count(bytes), MPI_BYTE, peer, tag, handle_.get(), &request), "MPI_Isend");
  requests.push_back(request);
}

void MpiGroup::receive(void* data, std::int64_t bytes, int peer, int tag, std::vector<MPI_Request>& requests) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, mpi_count(bytes), MPI_BYTE, peer, tag, handle_.get(), &request), "MPI_Irecv");
  requests.push_back(request);
}

bool MpiGroup::test_all(std::vector<MPI_Request>& requests) {
  if (requests.empty()) {
    return true;
  }
  if (statuses_.size() < requests.size()) {
    statuses_.resize(requests.size());
  }
  int done = 0;
  const int code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (statuses_[i].MPI_ERROR != MPI_ERR_PENDING) {
        check(statuses_[i].MPI_ERROR, "MPI_Testall");
      }
    }
  }
  check(code, "MPI_Testall");
  if (done == 0) {
    return false;
  }
  requests.clear();
  return true;
}

void withdraw(std::vector<MPI_Request>& requests) noexcept {
  for (MPI_Request& request : requests) {
    if (request != MPI_REQUEST_NULL && (MPI_Cancel(&request) != MPI_SUCCESS || MPI_Request_free(&request) != MPI_SUCCESS)) {
      base::log_error("an unfinished message could not be withdrawn");
    }
  }
  requests.clear();
}

}  // namespace shardmark::comm
