#pragma once
// A queue that keeps its memory: steady traffic allocates nothing.

#include <cstddef>
#include <utility>
#include <vector>

namespace shardmark::comm {

template <typename T>
class Ring {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& front() { return items_[head_]; }
  /// The i-th from the front.
  [[nodiscard]] T& operator[](std::size_t i) { return items_[(head_ + i) % items_.size()]; }

  void push_back(T item) {
    if (size_ == items_.size()) {
      grow();
    }
    items_[(head_ + size_) % items_.size()] = std::move(item);
    ++size_;
  }

  void pop_front() {
    head_ = (head_ + 1) % items_.size();
    --size_;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 16 : 2 * items_.size());
    for (std::size_t i = 0; i < size_; ++i) {
      larger[i] = std::move((*this)[i]);
    }
    items_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace shardmark::comm
