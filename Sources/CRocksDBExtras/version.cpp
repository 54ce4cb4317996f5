#include "include/CRocksDBVersion.h"

#include <rocksdb/version.h>

#include <string>

const char *sluice_rocksdb_version(void) {
    static const std::string version = rocksdb::GetRocksVersionAsString(true);
    return version.c_str();
}
