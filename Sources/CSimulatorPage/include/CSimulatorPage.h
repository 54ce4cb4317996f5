#pragma once
#include <stddef.h>

/// File of the device simulator's page, embedded in the program.
struct sluice_page_file {
    /// Path of the request, as `/page.js`.
    const char *path;
    /// MIME type with its character set.
    const char *type;
    /// Content; valid as long as the program runs.
    const unsigned char *bytes;
    /// Length of the content in bytes.
    size_t count;
};

/// Number of files.
size_t sluice_page_file_count(void);

/// File at an index; NULL beyond the last.
const struct sluice_page_file *sluice_page_file_at(size_t index);
