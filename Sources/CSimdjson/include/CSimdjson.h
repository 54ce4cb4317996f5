#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A reusable simdjson parser with its own padded input buffer. Not thread-safe: one owner, one thread
/// at a time. Nothing is allocated after creation.
typedef struct csimdjson_parser csimdjson_parser;

/// Kind of a document. Anything but CSIMDJSON_OBJECT is a refusal; where and why is the caller's to find
/// out, because simdjson names neither a position nor, for numbers beyond 64 bits, a reason that RFC 8259
/// would share.
typedef enum csimdjson_verdict {
  CSIMDJSON_OBJECT = 0,
  CSIMDJSON_OTHER_VALUE = 1,
  CSIMDJSON_REFUSED = 2,
} csimdjson_verdict;

/// A parser for documents of up to `capacity` bytes nested up to `max_depth` deep; NULL when memory is
/// short. The caller destroys it.
csimdjson_parser *_Nullable csimdjson_parser_create(size_t capacity, size_t max_depth);

void csimdjson_parser_destroy(csimdjson_parser *_Nullable parser);

/// Parses `length` bytes as one whole JSON document (UTF-8, numbers, escapes and trailing bytes included).
/// The bytes need no padding: they are copied into the parser's own buffer.
csimdjson_verdict csimdjson_parse(
    csimdjson_parser *_Nonnull parser, const void *_Nullable bytes, size_t length);

/// Name of the instruction set that simdjson chose on this machine ("haswell", "icelake", "arm64"…).
const char *_Nonnull csimdjson_implementation(void);

#ifdef __cplusplus
}
#endif
