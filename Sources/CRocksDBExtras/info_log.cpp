// Log of RocksDB's own messages that survives a full disk. RocksDB's logger writes to the database's directory. After a
// line that it couldn't write, the next line fails an assertion (`sync_without_flush_called_`, 7.8), which Debian's
// build keeps. This logger drops lines that it can't write.
#include "info_log.h"

#include <fcntl.h>
#include <rocksdb/env.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include "handles.h"

namespace {

constexpr off_t most_bytes = 1 << 20;

class InfoLog final : public rocksdb::Logger {
  public:
    explicit InfoLog(const char *directory)
        : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), path(directory ? std::string(directory) + "/LOG" : "") {}

    ~InfoLog() override {
        if (file >= 0) close(file);
    }

    // Drops headers: RocksDB logs all options with each new column family.
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
        // Opened with the first line, because the directory exists by then.
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
