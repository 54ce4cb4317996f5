import CRdkafka

/// Destroys simulated clients, which never resist.
enum ClientDestruction {
    static var keptClients: Int { 0 }

    static func keep() {}

    static func destroy(_ client: OpaquePointer) -> Bool {
        rd_kafka_destroy(client)
        return true
    }
}
