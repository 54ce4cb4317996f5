// RocksDB's own log of what it does is in the database's directory, and so on the disk that is full: after one line that it
// couldn't write, the next one meets an assertion (`sync_without_flush_called_`, 7.8), which Debian leaves in. This one leaves
// out what it can't write.
#include "info_log.h"

#include <fcntl.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

// What a handle of the C interface is (RocksDB's db/c.cc).
struct rocksdb_options_t {
    rocksdb::Options rep;
};

namespace {

constexpr off_t most_bytes = 1 << 20;

class InfoLog final : public rocksdb::Logger {
  public:
    explicit InfoLog(const char *directory)
        : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), path(directory ? std::string(directory) + "/LOG" : "") {}

    ~InfoLog() override {
        if (file >= 0) close(file);
    }

    // Headers: all options, each time that a column family is made.
    void LogHeader(const char *, va_list) override {}

    void Logv(const char *format, va_list arguments) override {
        if (path.empty()) return;
        char line[1024];
        time_t now = time(nullptr);
        tm parts{};
        gmtime_r(&now, &parts);
        size_t count = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ ", &parts);
        int added = vsnprintf(line + count, sizeof line - count, format, arguments);
        if (added < 0) return;
        count = std::min(count + static_cast<size_t>(added), sizeof line - 1);
        if (line[count - 1] != '\n') line[count < sizeof line - 1 ? count++ : count - 1] = '\n';
        std::lock_guard<std::mutex> guard(lock);
        struct stat status;
        if (file >= 0 && fstat(file, &status) == 0 && status.st_size > most_bytes) {
            close(file);
            file = -1;
            rename(path.c_str(), (path + ".old").c_str());
        }
        // With the first line the directory is there.
        if (file < 0) file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (file >= 0 && write(file, line, count) < 0) return;
    }

    using rocksdb::Logger::Logv;

  private:
    const std::string path;
    std::mutex lock;
    int file = -1;
};

}  // namespace

void sluice_set_info_log(rocksdb_options_t *options, const char *directory) {
    options->rep.info_log = std::make_shared<InfoLog>(directory);
}
