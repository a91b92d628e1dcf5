// The final figures of a run, as a message and as a JSON file.
#pragma once

#include <string>

#include "google/protobuf/message.h"
#include "octavo/v1/job.pb.h"
#include "worker/engine/engine.h"

namespace octavo::trainer {

// Fills in everything that the engine's final report and the backend know.
void AddFinalReport(const engine::FinalReport& final_report,
                    const kernels::BackendDescription& backend, v1::RunReport* report);

// Any message as JSON with the names of its fields; fields that are not set are written with their
// default, except messages and optional ones. 64-bit integers are numbers, not strings as in
// protobuf's own JSON mapping: the reader is a person or a script.
std::string ToJson(const google::protobuf::Message& message);

// A warning when the two jobs did not hold out the same tokens, else a comparison of the losses.
// Empty when one has no held-out loss.
std::string CompareWithBaseline(const v1::RunReport& report, const v1::Job& baseline);

}  // namespace octavo::trainer
