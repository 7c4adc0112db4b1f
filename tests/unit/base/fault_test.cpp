// Planted faults: the text of SHARDMARK_FAULT, where and how often they fire.

#include "base/fault.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <stdexcept>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "tests/support/child.hpp"

namespace shardmark::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

FaultPlan plan_for(const std::string& text, int world_rank) {
  FaultPlan plan(parse_fault(text));
  plan.set_world_rank(world_rank);
  return plan;
}

TEST(FaultText, AllParts) {
  const Fault fault = parse_fault("3:backward:230:mismatch:op");
  EXPECT_EQ(fault.world_rank, 3);
  EXPECT_EQ(fault.phase, FaultPhase::backward);
  EXPECT_EQ(fault.step, 230);
  EXPECT_EQ(fault.kind, FaultKind::mismatch);
  EXPECT_EQ(fault.value, "op");
  EXPECT_EQ(parse_fault("0:init:0:kill").value, "");
  EXPECT_EQ(parse_fault("0:init:0:bitflip:a:b").value, "a:b") << "a value may hold colons";
}

TEST(FaultText, EveryPhaseAndKind) {
  const std::pair<const char*, FaultPhase> phases[] = {{"init", FaultPhase::init},
                                                       {"data", FaultPhase::data},
                                                       {"forward", FaultPhase::forward},
                                                       {"backward", FaultPhase::backward},
                                                       {"comm", FaultPhase::comm},
                                                       {"optimizer", FaultPhase::optimizer},
                                                       {"checkpoint", FaultPhase::checkpoint},
                                                       {"record", FaultPhase::record}};
  for (const auto& [name, phase] : phases) {
    EXPECT_EQ(parse_fault(std::string("0:") + name + ":1:kill").phase, phase) << name;
  }
  const std::pair<const char*, FaultKind> kinds[] = {
      {"kill", FaultKind::kill},        {"stop", FaultKind::stop},     {"exit", FaultKind::exit},
      {"throw", FaultKind::raise},      {"nan", FaultKind::nan},       {"bitflip", FaultKind::bitflip},
      {"slow", FaultKind::slow},        {"enospc", FaultKind::enospc}, {"short-write", FaultKind::short_write},
      {"mismatch", FaultKind::mismatch}};
  for (const auto& [name, kind] : kinds) {
    EXPECT_EQ(parse_fault(std::string("0:data:1:") + name).kind, kind) << name;
  }
}

TEST(FaultText, WrongPartsAreNamedWithWhatIsAccepted) {
  EXPECT_THAT([] { static_cast<void>(parse_fault("0:init:kill")); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("0:init:kill"), HasSubstr("rank:phase:step:kind[:value]"))));
  try {
    static_cast<void>(parse_fault("-1:lunch:soon:explode"));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.problems(), SizeIs(4)) << "all at once";
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"-1\""), HasSubstr("\"lunch\" is not one of init, data"), HasSubstr("\"soon\""),
                                    HasSubstr("\"explode\" is not one of kill, stop")));
  }
  for (const char* wrong : {"", ":::", "0x:init:0:kill", "0:init:1.5:kill", "0:init:0:exit:soon", "0:init:0:slow:-4",
                            "99999999999:init:0:kill", "0: init:0:kill"}) {
    EXPECT_THROW(static_cast<void>(parse_fault(wrong)), ConfigError) << wrong;
  }
}

TEST(FaultPlan, IsDueOnceAtItsPlace) {
  auto plan = plan_for("1:backward:7:nan:x", 1);
  EXPECT_FALSE(plan.due(FaultPhase::backward, 6, FaultKind::nan));
  EXPECT_FALSE(plan.due(FaultPhase::forward, 7, FaultKind::nan));
  EXPECT_FALSE(plan.due(FaultPhase::backward, 7, FaultKind::bitflip));
  EXPECT_EQ(plan.due(FaultPhase::backward, 7, FaultKind::nan), "x");
  EXPECT_FALSE(plan.due(FaultPhase::backward, 7, FaultKind::nan)) << "once";
  auto other = plan_for("1:backward:7:nan", 0);
  EXPECT_FALSE(other.due(FaultPhase::backward, 7, FaultKind::nan)) << "another rank";
  FaultPlan unbound(parse_fault("0:backward:7:nan"));
  EXPECT_FALSE(unbound.due(FaultPhase::backward, 7, FaultKind::nan)) << "before it knows its rank";
  FaultPlan none;
  none.set_world_rank(0);
  EXPECT_FALSE(none.due(FaultPhase::backward, 7, FaultKind::nan));
}

#ifdef SM_FAULTS
/// How a process ends that passes the fault's place.
testing::ChildEnd end_of(const std::string& text, int world_rank = 0) {
  return testing::Child([&] { plan_for(text, world_rank).reach(FaultPhase::forward, 4); }).wait();
}

TEST(FaultPlan, ActsOnTheProcess) {
  EXPECT_EQ(end_of("0:forward:4:kill").signal, SIGKILL);
  EXPECT_EQ(end_of("0:forward:4:exit").exit_code, 3);
  EXPECT_EQ(end_of("0:forward:4:exit:9").exit_code, 9);
  const auto thrown = end_of("0:forward:4:throw");
  EXPECT_EQ(thrown.exit_code, 1);
  EXPECT_THAT(thrown.text, HasSubstr("fault planted"));
}

TEST(FaultPlan, PassesWhereItIsNotPlanted) {
  for (const char* elsewhere : {"1:forward:4:kill", "0:backward:4:kill", "0:forward:3:kill", "0:forward:5:kill"}) {
    const auto end = end_of(elsewhere);
    EXPECT_TRUE(end.exit_code == 0 && end.signal == 0) << elsewhere;
  }
}

TEST(FaultPlan, SlowGoesOnFromItsStep) {
  const auto seconds_at = [](FaultPlan plan, std::int64_t step) {
    const double start = now_s();
    plan.reach(FaultPhase::forward, step);
    return now_s() - start;
  };
  EXPECT_GE(seconds_at(plan_for("0:forward:4:slow:30", 0), 4), 0.030);
  EXPECT_GE(seconds_at(plan_for("0:forward:4:slow:30", 0), 5), 0.030);
  EXPECT_GE(seconds_at(plan_for("0:forward:4:slow", 0), 4), 0.020) << "the default";
  EXPECT_LT(seconds_at(plan_for("0:forward:4:slow:60000", 0), 3), 60.0) << "before its step";
}

TEST(FaultPlan, ComesFromTheEnvironment) {
  unsetenv("SHARDMARK_FAULT");
  EXPECT_EQ(FaultPlan::from_environment().text(), "");
  setenv("SHARDMARK_FAULT", "0:init:0:slow", 1);
  EXPECT_EQ(FaultPlan::from_environment().text(), "0:init:0:slow") << "for the record";
  setenv("SHARDMARK_FAULT", "nonsense", 1);
  EXPECT_THROW(static_cast<void>(FaultPlan::from_environment()), ConfigError);
  unsetenv("SHARDMARK_FAULT");
}
#else
TEST(FaultPlan, ABuildWithoutFaultPointsRefusesTheVariable) {
  setenv("SHARDMARK_FAULT", "0:init:0:nan", 1);
  EXPECT_THROW(static_cast<void>(FaultPlan::from_environment()), ConfigError);
  unsetenv("SHARDMARK_FAULT");
}
#endif

}  // namespace
}  // namespace shardmark::base
