#pragma once
// A child process for one test: what would end or change the test program itself happens there. POSIX.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace shardmark::testing {

/// How a child ended: by `exit_code`, or by `signal`; `text` is what it said of an exception.
struct ChildEnd {
  int exit_code = -1;
  int signal = 0;
  std::string text;
};

/// Forks; the child runs `body` and leaves with 0, or with the exit code of what was thrown. It never returns into the test.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe for a child process");
    }
    process_ = fork();
    if (process_ < 0) {
      throw std::runtime_error("no child process");
    }
    if (process_ == 0) {
      close(ends[0]);
      say_ = ends[1];
      _exit(run(body));
    }
    close(ends[1]);
    hear_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ > 0) {
      kill(SIGKILL);
      static_cast<void>(wait());
    }
    close(hear_);
  }

  void kill(int signal) const { ::kill(process_, signal); }

  /// Waits for the end; a body that hangs is the test's time limit.
  ChildEnd wait() {
    ChildEnd end;
    char piece[512];
    for (ssize_t got = 0; (got = read(hear_, piece, sizeof piece)) > 0;) {
      end.text.append(piece, static_cast<std::size_t>(got));
    }
    int status = 0;
    while (waitpid(std::exchange(process_, -1), &status, 0) < 0 && errno == EINTR) {
    }
    end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return end;
  }

 private:
  int run(const std::function<void()>& body) const {
    try {
      body();
      return 0;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      static_cast<void>(!write(say_, text.data(), text.size()));
      return static_cast<int>(base::exit_code_of(error));
    }
  }

  pid_t process_ = -1;
  int hear_ = -1;
  int say_ = -1;
};

}  // namespace shardmark::testing
