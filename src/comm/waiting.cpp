#include "comm/waiting.hpp"

#include "base/error.hpp"
#include "world/world.hpp"

namespace shardmark::comm {

void wait_for(Pending& pending, const std::function<std::string()>& what) {
  try {
    pending.wait();
  } catch (const base::DeadlineError& error) {
    throw base::DeadlineError(what() + ": " + error.what());
  } catch (const world::Interrupted& error) {
    throw world::Interrupted(what() + ": " + error.what());
  }
}

}  // namespace shardmark::comm
