// The C face of simdjson's DOM parser. The DOM parser rather than On-Demand: it validates the whole document
// and lives in the shared library, compiled for every instruction set and chosen at run time, where On-Demand
// is a template compiled for the baseline CPU only.

#define SIMDJSON_EXCEPTIONS 0

#include "CSimdjson.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <simdjson.h>

struct csimdjson_parser {
  simdjson::dom::parser dom;
  std::unique_ptr<uint8_t[]> input;
  size_t capacity;

  explicit csimdjson_parser(size_t limit) : dom(limit), capacity(limit) {}
};

extern "C" csimdjson_parser *csimdjson_parser_create(size_t capacity, size_t max_depth) {
  std::unique_ptr<csimdjson_parser> parser(new (std::nothrow) csimdjson_parser(capacity));
  if (!parser) return nullptr;
  parser->input.reset(new (std::nothrow) uint8_t[capacity + simdjson::SIMDJSON_PADDING]);
  if (!parser->input) return nullptr;
  std::memset(parser->input.get(), 0, capacity + simdjson::SIMDJSON_PADDING);
  if (parser->dom.allocate(capacity, max_depth) != simdjson::SUCCESS) return nullptr;
  if (parser->dom.doc.allocate(capacity) != simdjson::SUCCESS) return nullptr;
  return parser.release();
}

extern "C" void csimdjson_parser_destroy(csimdjson_parser *parser) { delete parser; }

extern "C" csimdjson_verdict csimdjson_parse(csimdjson_parser *parser, const void *bytes, size_t length) {
  if (bytes == nullptr || length == 0 || length > parser->capacity) return CSIMDJSON_REFUSED;
  std::memcpy(parser->input.get(), bytes, length);
  simdjson::dom::element root;
  if (parser->dom.parse(parser->input.get(), length, false).get(root) != simdjson::SUCCESS) {
    return CSIMDJSON_REFUSED;
  }
  return root.type() == simdjson::dom::element_type::OBJECT ? CSIMDJSON_OBJECT : CSIMDJSON_OTHER_VALUE;
}

extern "C" const char *csimdjson_implementation(void) {
  static const std::string name = simdjson::get_active_implementation()->name();
  return name.c_str();
}
