// A backend for tests of operations: memory with guarded ends, so that a write beyond an array is a
// failure.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace octavo::testing_support {

// The backend is "cpu" or what OCTAVO_TEST_BACKEND names.
class Device {
 public:
  explicit Device(int threads = 2) {
    const char* const name = std::getenv("OCTAVO_TEST_BACKEND");
    auto backend = kernels::OpenBackend(name != nullptr ? name : "cpu",
                                        {.memory_bytes = 0, .threads = threads});
    if (!backend.ok()) ADD_FAILURE() << backend.status();
    backend_ = *std::move(backend);
  }
  ~Device() {
    for (const Array& array : arrays_) {
      std::vector<unsigned char> guard(kGuardBytes);
      EXPECT_TRUE(backend_->CopyOut(guard.data(), array.data + array.bytes, kGuardBytes).ok());
      EXPECT_EQ(guard, std::vector<unsigned char>(kGuardBytes, kPoison))
          << "something wrote beyond an array of " << array.bytes << " bytes";
      backend_->Free(array.data);
    }
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  kernels::Backend* operator->() { return backend_.get(); }

  // An array that holds `values`; lives as long as the device.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    T* const array = Make<T>(static_cast<int64_t>(values.size()));
    EXPECT_TRUE(
        backend_->CopyIn(array, values.data(), static_cast<int64_t>(values.size() * sizeof(T)))
            .ok());
    return array;
  }

  // An array of poison: 0xA5 in every byte.
  template <typename T>
  T* Make(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    auto memory = backend_->Allocate(bytes + kGuardBytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    const std::vector<unsigned char> poison(static_cast<size_t>(bytes + kGuardBytes), kPoison);
    EXPECT_TRUE(backend_->CopyIn(*memory, poison.data(), bytes + kGuardBytes).ok());
    arrays_.push_back({static_cast<unsigned char*>(*memory), bytes});
    return static_cast<T*>(*memory);
  }

  template <typename T>
  std::vector<T> Get(const T* array, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    EXPECT_TRUE(
        backend_->CopyOut(values.data(), array, count * static_cast<int64_t>(sizeof(T))).ok());
    return values;
  }

 private:
  static constexpr int64_t kGuardBytes = 256;
  static constexpr unsigned char kPoison = 0xA5;
  struct Array {
    unsigned char* data;
    int64_t bytes;
  };
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<Array> arrays_;
};

}  // namespace octavo::testing_support
