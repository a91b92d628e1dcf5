// Specs and points that a coordinator accepts, with what does not matter filled in.
#pragma once

#include <string>

#include "octavo/v1/job.pb.h"
#include "octavo/v1/metric.pb.h"
#include "octavo/v1/spec.pb.h"

namespace octavo::testing_support {

inline v1::JobSpec SomeSpec(const std::string& name = "some-job") {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_output_folder("/nowhere/output");
  v1::Stage& stage = *spec.add_stages();
  stage.set_kind("cpt");
  stage.mutable_model()->set_folder("/nowhere/models/tiny");
  stage.mutable_data()->add_files("/nowhere/data/train.txt");
  stage.mutable_data()->set_sequence_length(128);
  stage.mutable_optimizer()->set_learning_rate(1e-3);
  stage.set_steps(10);
  return spec;
}

inline v1::MetricPoint Point(const std::string& name, int64_t step, double value) {
  v1::MetricPoint point;
  point.set_name(name);
  point.set_step(step);
  point.set_value(value);
  point.set_time_unix_ms(1700000000000 + step);
  return point;
}

}  // namespace octavo::testing_support
