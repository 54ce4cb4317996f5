#pragma once
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

/// `rd_kafka_producev` takes variadic arguments, which Swift cannot call. The topic handle is borrowed, key and
/// value are copied (NULL: a null key or value). `headers` may be NULL; it is consumed when the answer is
/// RD_KAFKA_RESP_ERR_NO_ERROR and stays the caller's otherwise.
static inline rd_kafka_resp_err_t sluice_produce_with_headers(
    rd_kafka_t *client, rd_kafka_topic_t *topic, int32_t partition, const void *key, size_t key_length,
    const void *value, size_t value_length, rd_kafka_headers_t *headers, void *opaque) {
    if (!headers) {
        return rd_kafka_producev(
            client, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_PARTITION(partition),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key_length),
            RD_KAFKA_V_VALUE((void *)value, value_length), RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
    }
    return rd_kafka_producev(
        client, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_PARTITION(partition),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key_length),
        RD_KAFKA_V_VALUE((void *)value, value_length), RD_KAFKA_V_HEADERS(headers),
        RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
}
