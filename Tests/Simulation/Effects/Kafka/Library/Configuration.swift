// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka

typealias RebalanceCallback =
    @convention(c) (
        OpaquePointer?, rd_kafka_resp_err_t, UnsafeMutablePointer<rd_kafka_topic_partition_list_t>?,
        UnsafeMutableRawPointer?
    ) -> Void
typealias ErrorCallback =
    @convention(c) (
        OpaquePointer?, Int32, UnsafePointer<CChar>?, UnsafeMutableRawPointer?
    ) -> Void
typealias StatisticsCallback =
    @convention(c) (
        OpaquePointer?, UnsafeMutablePointer<CChar>?, Int, UnsafeMutableRawPointer?
    ) -> Int32
typealias LogCallback =
    @convention(c) (
        OpaquePointer?, Int32, UnsafePointer<CChar>?, UnsafePointer<CChar>?
    ) -> Void
typealias NewCallback =
    @convention(c) (
        OpaquePointer?, OpaquePointer?, UnsafeMutableRawPointer?, UnsafeMutablePointer<CChar>?, Int
    ) -> rd_kafka_resp_err_t
typealias RequestCallback =
    @convention(c) (
        OpaquePointer?, Int32, UnsafePointer<CChar>?, Int32, Int16, Int16, Int32, Int,
        UnsafeMutableRawPointer?
    ) -> rd_kafka_resp_err_t
typealias ResponseCallback =
    @convention(c) (
        OpaquePointer?, Int32, UnsafePointer<CChar>?, Int32, Int16, Int16, Int32, Int, Int64,
        rd_kafka_resp_err_t, UnsafeMutableRawPointer?
    ) -> rd_kafka_resp_err_t

/// A client's configuration. librdkafka's own object checks the properties.
final class ClientSettings {
    let checked = CRdkafka.rd_kafka_conf_new()!
    private var properties: [String: String] = [:]
    var opaque: UnsafeMutableRawPointer?
    var rebalance: RebalanceCallback?
    var error: ErrorCallback?
    var log: LogCallback?
    var created: (callback: NewCallback, opaque: UnsafeMutableRawPointer?)?

    deinit { CRdkafka.rd_kafka_conf_destroy(checked) }

    subscript(name: String) -> String? {
        get { properties[name] }
        set { properties[name] = newValue }
    }

    func number(_ name: String) -> Int? { properties[name].flatMap { Int($0) } }
}

func rd_kafka_version() -> Int32 { RD_KAFKA_VERSION }

func rd_kafka_conf_new() -> OpaquePointer! { owned(ClientSettings()) }

func rd_kafka_conf_destroy(_ conf: OpaquePointer!) { release(conf) }

func rd_kafka_conf_get(
    _ conf: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ dest: UnsafeMutablePointer<CChar>!,
    _ dest_size: UnsafeMutablePointer<Int>!
) -> rd_kafka_conf_res_t {
    CRdkafka.rd_kafka_conf_get(object(conf, as: ClientSettings.self).checked, name, dest, dest_size)
}

func rd_kafka_conf_set(
    _ conf: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!,
    _ errstr: UnsafeMutablePointer<CChar>!, _ errstr_size: Int
) -> rd_kafka_conf_res_t {
    let settings = object(conf, as: ClientSettings.self)
    settings[String(cString: name)] = String(cString: value)
    return CRdkafka.rd_kafka_conf_set(settings.checked, name, value, errstr, errstr_size)
}

func rd_kafka_conf_set_opaque(_ conf: OpaquePointer!, _ opaque: UnsafeMutableRawPointer!) {
    object(conf, as: ClientSettings.self).opaque = opaque
}

func rd_kafka_conf_set_rebalance_cb(_ conf: OpaquePointer!, _ rebalance_cb: RebalanceCallback!) {
    object(conf, as: ClientSettings.self).rebalance = rebalance_cb
}

func rd_kafka_conf_set_error_cb(_ conf: OpaquePointer!, _ error_cb: ErrorCallback!) {
    object(conf, as: ClientSettings.self).error = error_cb
}

/// There are no statistics.
func rd_kafka_conf_set_stats_cb(_ conf: OpaquePointer!, _ stats_cb: StatisticsCallback!) {}

func rd_kafka_conf_set_log_cb(_ conf: OpaquePointer!, _ log_cb: LogCallback!) {
    object(conf, as: ClientSettings.self).log = log_cb
}

func rd_kafka_conf_set_events(_ conf: OpaquePointer!, _ events: Int32) {}

func rd_kafka_conf_interceptor_add_on_new(
    _ conf: OpaquePointer!, _ ic_name: UnsafePointer<CChar>!, _ on_new: NewCallback!,
    _ ic_opaque: UnsafeMutableRawPointer!
) -> rd_kafka_resp_err_t {
    object(conf, as: ClientSettings.self).created = (on_new, ic_opaque)
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_interceptor_add_on_request_sent(
    _ rk: OpaquePointer!, _ ic_name: UnsafePointer<CChar>!, _ on_request_sent: RequestCallback!,
    _ ic_opaque: UnsafeMutableRawPointer!
) -> rd_kafka_resp_err_t {
    object(rk, as: KafkaClient.self).requestSent = (on_request_sent, ic_opaque)
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_interceptor_add_on_response_received(
    _ rk: OpaquePointer!, _ ic_name: UnsafePointer<CChar>!, _ on_response_received: ResponseCallback!,
    _ ic_opaque: UnsafeMutableRawPointer!
) -> rd_kafka_resp_err_t {
    object(rk, as: KafkaClient.self).responseReceived = (on_response_received, ic_opaque)
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

// MARK: Clients

func rd_kafka_new(
    _ type: rd_kafka_type_t, _ conf: OpaquePointer!, _ errstr: UnsafeMutablePointer<CChar>!,
    _ errstr_size: Int
) -> OpaquePointer! {
    let settings = object(conf, as: ClientSettings.self)
    let client = KafkaClient(.current, settings, isConsumer: type == RD_KAFKA_CONSUMER)
    let handle = owned(client)
    if let (callback, opaque) = settings.created { _ = callback(handle, conf, opaque, nil, 0) }
    release(conf)
    return handle
}

func rd_kafka_destroy(_ rk: OpaquePointer!) {
    let client = object(rk, as: KafkaClient.self)
    client.end()
    release(rk)
}

func rd_kafka_opaque(_ rk: OpaquePointer!) -> UnsafeMutableRawPointer! {
    object(rk, as: KafkaClient.self).settings.opaque
}

func rd_kafka_fatal_error(
    _ rk: OpaquePointer!, _ errstr: UnsafeMutablePointer<CChar>!, _ errstr_size: Int
) -> rd_kafka_resp_err_t {
    guard let (code, reason) = object(rk, as: KafkaClient.self).fatalError else {
        return RD_KAFKA_RESP_ERR_NO_ERROR
    }
    copy(reason, to: errstr, errstr_size)
    return code
}

func rd_kafka_mem_free(_ rk: OpaquePointer!, _ ptr: UnsafeMutableRawPointer!) { ptr.deallocate() }

/// Connections have nothing to report.
func rd_kafka_poll(_ rk: OpaquePointer!, _ timeout_ms: Int32) -> Int32 { 0 }

func rd_kafka_poll_set_consumer(_ rk: OpaquePointer!) -> rd_kafka_resp_err_t { RD_KAFKA_RESP_ERR_NO_ERROR }

func rd_kafka_set_log_queue(_ rk: OpaquePointer!, _ rkqu: OpaquePointer!) -> rd_kafka_resp_err_t {
    RD_KAFKA_RESP_ERR_NO_ERROR
}
