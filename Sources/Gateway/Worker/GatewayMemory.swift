/// Memory of the gateway's own tables, for measurements.
public enum GatewayMemory {
    /// Bytes of a job's slot in a shard, without the record that it points to.
    public static var bytesPerJob: Int { MemoryLayout<Job>.stride }
}
