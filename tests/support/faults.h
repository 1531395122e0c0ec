// One counter over everything that a test's disk does; the n-th operation fails.
#pragma once

namespace cento::test {

enum class Fault {
  kOnce,        // the n-th operation fails; nothing of it happens
  kShortWrite,  // the first one from the n-th on that needs room fails; half of a write gets through
  kForGood,     // from the n-th operation on the first that changes something and all later ones fail: as far as the
                // disk goes, the process was killed
  kDiskFull,    // from the n-th operation on whatever needs room fails
};

enum class Op {
  kLook,    // a read, a size, a lock: nothing on the disk is another
  kChange,  // a sync, a rename, a removal, a cut
  kGrow,    // a write, a new file or folder: needs room
};

class Faults {
 public:
  void fail_at(int n, Fault fault) {  // n: 0 never, else from 1; counts from here
    *this = {};
    fail_at_ = n;
    fault_ = fault;
  }
  // Counts an operation. True: it has to fail.
  bool next_fails(Op op) {
    ++n_ops_;
    if (fail_at_ == 0 || n_ops_ < fail_at_ || !hits(op)) return false;
    if (failed_at_ == 0) failed_at_ = n_ops_;
    return true;
  }
  bool half_gets_through() const { return fault_ == Fault::kShortWrite; }
  bool no_room() const { return fault_ == Fault::kShortWrite || fault_ == Fault::kDiskFull; }
  bool failed() const { return failed_at_ != 0; }
  int failed_at() const { return failed_at_; }  // the first operation that did; 0: none
  int fail_at() const { return fail_at_; }
  int n_ops() const { return n_ops_; }

 private:
  bool hits(Op op) const {
    switch (fault_) {
      case Fault::kOnce:
        return n_ops_ == fail_at_;
      case Fault::kShortWrite:
        return op == Op::kGrow && failed_at_ == 0;
      case Fault::kForGood:
        return op != Op::kLook || failed_at_ != 0;
      case Fault::kDiskFull:
        return op == Op::kGrow;
    }
    return false;
  }

  int n_ops_ = 0, fail_at_ = 0, failed_at_ = 0;
  Fault fault_ = Fault::kOnce;
};

// What a power cut leaves of names and of content that were not synced.
enum class AfterCrash {
  kSyncedNames,  // names as of the latest sync of their folder, content as of the latest sync of the file
  kAllNames,     // all names, the same content
  kSomeWrites,   // in a catalogue's files: each write, name and deletion since the latest sync or not, at random
};

}  // namespace cento::test
