// A backend that runs nothing before somebody must see it: what CUDA's streams may do, played on
// the CPU. Code that needs an order which it did not ask for computes other numbers here.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "kernels/backend.h"

namespace octavo::testing_support {

class DeferredBackend final : public kernels::Backend {
 public:
  enum class Copies {
    kLate,   // the copy queue runs when something waits for it
    kEarly,  // it runs as soon as what it waits for has run
  };

  DeferredBackend(std::unique_ptr<kernels::Backend> backend, Copies copies)
      : backend_(std::move(backend)), copies_(copies) {}
  ~DeferredBackend() override { CHECK(Synchronize().ok()); }

  kernels::BackendDescription Describe() const override { return backend_->Describe(); }
  int64_t QuantizedBytes(const kernels::QuantizedSpec& spec) const override {
    return backend_->QuantizedBytes(spec);
  }
  absl::Status Reserve(const kernels::LargestOperations& largest) override {
    return backend_->Reserve(largest);
  }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return backend_->Allocate(bytes); }
  void Free(void* memory) override {
    CHECK(Synchronize().ok());
    backend_->Free(memory);
  }
  kernels::MemoryUse memory_use() const override { return backend_->memory_use(); }
  absl::StatusOr<void*> AllocateHost(int64_t bytes) override {
    return backend_->AllocateHost(bytes);
  }
  void FreeHost(void* memory) override {
    CHECK(Synchronize().ok());
    backend_->FreeHost(memory);
  }

  absl::Status CopyIn(void* to, const void* from_host, int64_t bytes) override {
    const std::string kept(static_cast<const char*>(from_host), static_cast<size_t>(bytes));
    return Enqueue(kernels::Queue::kCompute, [this, to, kept] {
      return backend_->CopyIn(to, kept.data(), static_cast<int64_t>(kept.size()));
    });
  }
  absl::Status EnqueueCopyIn(kernels::Queue queue, void* to, const void* from_pinned,
                             int64_t bytes) override {
    return Enqueue(queue, [=, this] { return backend_->CopyIn(to, from_pinned, bytes); });
  }
  absl::Status CopyOut(void* to_host, const void* from, int64_t bytes) override {
    RETURN_IF_ERROR(RunUntil(&compute_, compute_.enqueued));
    return backend_->CopyOut(to_host, from, bytes);
  }

  absl::StatusOr<std::unique_ptr<kernels::Event>> CreateEvent() override {
    return std::make_unique<Mark>();
  }
  absl::Status Record(kernels::Queue queue, kernels::Event* event) override {
    Line* const line = LineOf(queue);
    static_cast<Mark*>(event)->line = line;
    static_cast<Mark*>(event)->position = line->enqueued;
    return absl::OkStatus();
  }
  absl::Status Wait(kernels::Queue queue, const kernels::Event& event) override {
    const Mark mark = static_cast<const Mark&>(event);
    if (mark.line == nullptr) return absl::OkStatus();
    return Enqueue(queue, Work{[] { return absl::OkStatus(); }, mark});
  }
  absl::Status WaitOnHost(const kernels::Event& event) override {
    const Mark& mark = static_cast<const Mark&>(event);
    return mark.line == nullptr ? absl::OkStatus() : RunUntil(mark.line, mark.position);
  }
  absl::Status Synchronize() override {
    RETURN_IF_ERROR(RunUntil(&copy_, copy_.enqueued));
    return RunUntil(&compute_, compute_.enqueued);
  }

 protected:
  absl::Status Execute(const kernels::Operation& operation) override {
    return Enqueue(kernels::Queue::kCompute,
                   [this, operation] { return backend_->Run(operation); });
  }

 private:
  struct Line;
  struct Mark final : kernels::Event {
    Line* line = nullptr;  // null: never recorded
    int64_t position = 0;
  };
  struct Work {
    std::function<absl::Status()> run;
    Mark after;
  };
  struct Line {
    std::deque<Work> waiting;
    int64_t enqueued = 0;
    int64_t done = 0;
  };

  Line* LineOf(kernels::Queue queue) {
    return queue == kernels::Queue::kCompute ? &compute_ : &copy_;
  }

  absl::Status Enqueue(kernels::Queue queue, std::function<absl::Status()> run) {
    return Enqueue(queue, Work{std::move(run), Mark()});
  }
  absl::Status Enqueue(kernels::Queue queue, Work work) {
    Line* const line = LineOf(queue);
    line->waiting.push_back(std::move(work));
    ++line->enqueued;
    return copies_ == Copies::kEarly ? RunCopiesThatMay() : absl::OkStatus();
  }

  absl::Status RunCopiesThatMay() {
    while (!copy_.waiting.empty()) {
      const Mark& after = copy_.waiting.front().after;
      if (after.line != nullptr && after.line->done < after.position) return absl::OkStatus();
      RETURN_IF_ERROR(RunUntil(&copy_, copy_.done + 1));
    }
    return absl::OkStatus();
  }

  absl::Status RunUntil(Line* line, int64_t position) {
    while (line->done < position) {
      const Work work = std::move(line->waiting.front());
      line->waiting.pop_front();
      if (work.after.line != nullptr) {
        RETURN_IF_ERROR(RunUntil(work.after.line, work.after.position));
      }
      RETURN_IF_ERROR(work.run());
      ++line->done;
    }
    return absl::OkStatus();
  }

  std::unique_ptr<kernels::Backend> backend_;
  const Copies copies_;
  Line compute_;
  Line copy_;
};

}  // namespace octavo::testing_support
