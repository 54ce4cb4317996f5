#pragma once
#include <errno.h>
#include <stdint.h>
#include <time.h>
#include <openssl/bn.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <openssl/x509_vfy.h>

// OpenSSL spells part of its API as macros, which Swift does not import.

static inline int sluice_SSL_CTX_set_min_proto_version(SSL_CTX *context, int version) {
  return SSL_CTX_set_min_proto_version(context, version);
}
static inline int sluice_SSL_CTX_set_max_proto_version(SSL_CTX *context, int version) {
  return SSL_CTX_set_max_proto_version(context, version);
}
static inline long sluice_SSL_CTX_set_mode(SSL_CTX *context, long mode) {
  return SSL_CTX_set_mode(context, mode);
}
static inline long sluice_SSL_set_tlsext_host_name(SSL *ssl, const char *name) {
  return SSL_set_tlsext_host_name(ssl, name);
}
static inline long sluice_SSL_CTX_set_session_cache_mode(SSL_CTX *context, long mode) {
  return SSL_CTX_set_session_cache_mode(context, mode);
}
static inline void sluice_SSL_CTX_set_read_ahead(SSL_CTX *context, int yes) {
  SSL_CTX_set_read_ahead(context, yes);
}
static inline long sluice_SSL_CTX_add1_chain_cert(SSL_CTX *context, X509 *certificate) {
  return SSL_CTX_add1_chain_cert(context, certificate);
}
static inline uint64_t sluice_SSL_CTX_set_base_options(SSL_CTX *context) {
  return SSL_CTX_set_options(
      context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
}
static inline uint64_t sluice_SSL_CTX_prefer_server_ciphers(SSL_CTX *context) {
  return SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
}
static inline long sluice_BIO_get_mem_data(BIO *bio, char **data) {
  return BIO_get_mem_data(bio, data);
}
// Refuses a write to the socket from the moment on that the callback's argument names: nanoseconds of CLOCK_BOOTTIME,
// UINT64_MAX for never. The clock is read right before the system call, as the process may have been stopped.
static inline long sluice_BIO_check_deadline(
    BIO *bio, int operation, const char *bytes, size_t length, int argument, long more, int result, size_t *done) {
  (void)bytes, (void)length, (void)argument, (void)more, (void)done;
  if (operation != BIO_CB_WRITE) return result;
  const uint64_t *deadline = (const uint64_t *)(const void *)BIO_get_callback_arg(bio);
  if (*deadline == UINT64_MAX) return 1;
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  if ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec < *deadline) return 1;
  BIO_clear_retry_flags(bio);
  errno = ETIME;
  return 0;
}
// A write BIO that collects up to `size` bytes before it writes to the socket, and writes nothing after `deadline`, which
// outlives it. The caller owns one reference, to be given back with BIO_free_all. NULL without memory.
static inline BIO *sluice_SSL_gather_output(SSL *ssl, int descriptor, long size, const uint64_t *deadline) {
  BIO *plain = BIO_new_socket(descriptor, BIO_NOCLOSE);
  BIO *buffer = BIO_new(BIO_f_buffer());
  if (plain == NULL || buffer == NULL || BIO_set_write_buffer_size(buffer, size) != 1) {
    BIO_free(plain);
    BIO_free(buffer);
    return NULL;
  }
  BIO_set_callback_arg(plain, (char *)(void *)deadline);
  BIO_set_callback_ex(plain, sluice_BIO_check_deadline);
  SSL_set0_wbio(ssl, BIO_push(buffer, plain));
  BIO_up_ref(buffer);
  return buffer;
}
// Lets records go through the buffer or, while it is empty, straight to the socket behind it.
static inline void sluice_SSL_choose_output(SSL *ssl, BIO *buffer, int direct) {
  BIO *target = direct ? BIO_next(buffer) : buffer;
  if (SSL_get_wbio(ssl) == target) return;
  BIO_up_ref(target);
  SSL_set0_wbio(ssl, target);
}
static inline int sluice_SSL_flush_output(SSL *ssl) { return (int)BIO_flush(SSL_get_wbio(ssl)); }
static inline int sluice_SSL_output_should_retry(SSL *ssl) { return BIO_should_retry(SSL_get_wbio(ssl)); }
// Bytes that the socket behind the gathering buffer has taken, and those that wait in the buffer.
static inline uint64_t sluice_BIO_handed_over(BIO *buffer) { return BIO_number_written(BIO_next(buffer)); }
static inline size_t sluice_BIO_waiting(BIO *buffer) { return BIO_ctrl_wpending(buffer); }
// HMAC-SHA256 with the states of both pads made once: OpenSSL's own HMAC allocates for each message. The functions on states
// are deprecated since OpenSSL 3.0 in favour of those that allocate.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
typedef struct {
  SHA256_CTX inner;
  SHA256_CTX outer;
} sluice_HMAC_SHA256;
// Makes the states of a key of any length.
static inline void sluice_HMAC_SHA256_begin(sluice_HMAC_SHA256 *state, const unsigned char *key, size_t length) {
  unsigned char block[SHA256_CBLOCK] = {0};
  SHA256_CTX digest;
  if (length > sizeof block) {
    SHA256_Init(&digest);
    SHA256_Update(&digest, key, length);
    SHA256_Final(block, &digest);
  } else {
    for (size_t index = 0; index < length; index++) block[index] = key[index];
  }
  for (size_t index = 0; index < sizeof block; index++) block[index] ^= 0x36;
  SHA256_Init(&state->inner);
  SHA256_Update(&state->inner, block, sizeof block);
  for (size_t index = 0; index < sizeof block; index++) block[index] ^= 0x36 ^ 0x5c;
  SHA256_Init(&state->outer);
  SHA256_Update(&state->outer, block, sizeof block);
  OPENSSL_cleanse(block, sizeof block);
}
// Writes the 32 bytes of a message's HMAC. Changes and allocates nothing.
static inline void sluice_HMAC_SHA256_of(
    const sluice_HMAC_SHA256 *state, const unsigned char *message, size_t length, unsigned char *result) {
  SHA256_CTX digest = state->inner;
  SHA256_Update(&digest, message, length);
  SHA256_Final(result, &digest);
  digest = state->outer;
  SHA256_Update(&digest, result, SHA256_DIGEST_LENGTH);
  SHA256_Final(result, &digest);
}
#pragma GCC diagnostic pop
static inline int sluice_ERR_reason(unsigned long code) { return ERR_GET_REASON(code); }
static inline int sluice_ERR_library(unsigned long code) { return ERR_GET_LIB(code); }
static const int sluice_MBSTRING_UTF8 = MBSTRING_UTF8;
static const unsigned long sluice_XN_FLAG_RFC2253 = XN_FLAG_RFC2253;
