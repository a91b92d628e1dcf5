// Jobs in words.
#pragma once

#include <string>
#include <vector>

#include "client/render/terminal.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/node.pb.h"

namespace octavo::client {

// "running", in its colour.
std::string StateName(const Terminal& terminal, v1::JobState state);
// The state of that name, or unspecified.
v1::JobState StateOf(absl::string_view name);
// Every name of a state, in order.
std::vector<std::string> StateNames();

// "out of memory: <message>".
std::string FailureText(const v1::Failure& failure);

// "fp8", or "-" for a job without stages.
std::string RecipeOf(const v1::Job& job);
int64_t StepsOf(const v1::Job& job);

// What a watcher wants to know of a change, a line each; `before` null: what there is now.
std::vector<std::string> DescribeChange(const v1::Job* before, const v1::Job& after);

// One line about a job that has ended.
std::string DescribeEnd(const v1::Job& job);

}  // namespace octavo::client
