import SluiceModel
import StoreEncryption

extension DeviceStateBytes {
    /// Returns the encrypted token behind a state; nil when the state has none.
    static func sealedToken(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        guard bytes.count > count, bytes[0] == versionWithSealedToken else { return nil }
        return UnsafeRawBufferPointer(rebasing: bytes[count...])
    }

    /// Appends a state with its encrypted token. A token with an odd number of digits is left out.
    static func append(
        _ state: DeviceState, sealing token: UnsafeRawBufferPointer, at place: ValuePlace,
        by cipher: ValueCipher,
        to writer: inout ByteWriter
    ) throws(CipherFailure) {
        let hasToken = token.count % 2 == 0 && !token.isEmpty
        _ = writer.append(count: count) {
            write(state, to: $0)
            if hasToken { $0.storeBytes(of: versionWithSealedToken, as: UInt8.self) }
            return true
        }
        guard hasToken else { return }
        let packed = token.count / 2
        let failure: CipherFailure? = withUnsafeTemporaryAllocation(byteCount: packed, alignment: 8) {
            bytes in
            HexadecimalText.pack(token, into: bytes.baseAddress!)
            do throws(CipherFailure) {
                try cipher.seal(UnsafeRawBufferPointer(bytes), at: place, into: &writer)
                return nil
            } catch {
                return error
            }
        }
        if let failure { throw failure }
    }
}

extension StoreBatch {
    /// Stores the state of a device with its token, which is encrypted.
    /// - Parameter token: valid digits, which a load returns.
    /// - Throws: the failure of OpenSSL; the batch is then unchanged.
    public mutating func put(
        _ partition: StorePartition, device: DeviceKey, _ state: DeviceState,
        token: UnsafeRawBufferPointer, sealedBy cipher: ValueCipher
    ) throws(CipherFailure) {
        storage.scratch.removeAll()
        try DeviceStateBytes.append(
            state, sealing: token, at: .device(partition: partition.number, device), by: cipher,
            to: &storage.scratch)
        let storage = storage
        put(partition.devices, DeviceKeyBytes(device), count: storage.scratch.count) {
            $0.copyMemory(from: storage.scratch.bytes.baseAddress!, byteCount: storage.scratch.count)
        }
    }
}

extension BatchResult {
    /// Appends the digits of a device's token, in lower case; appends nothing when the store has no token.
    /// - Parameter cipher: nil: encryption is off.
    /// - Throws: the reason for which an encrypted token can't be read.
    public func appendToken(
        of device: LoadedDevice, with cipher: ValueCipher?, to writer: inout ByteWriter
    ) throws(SealedValueError) {
        let bytes = tokenBytes(device)
        guard device.isTokenSealed else { return writer.append(bytes) }
        guard let cipher else { throw SealedValue.fault(of: bytes, with: nil) ?? .malformed }
        var packed = ByteWriter(minimumCapacity: bytes.count)
        try cipher.open(
            bytes, at: .device(partition: device.partition, device.device), into: &packed)
        _ = writer.append(count: 2 * packed.count) {
            HexadecimalText.unpack(packed.bytes, upperCase: false, into: $0)
            return true
        }
    }
}

extension ChangelogKey {
    /// Appends an item's value like ``encode(_:due:into:)``, with the push encrypted.
    /// - Parameter scratch: memory for the plain push.
    /// - Returns: number of bytes before those of the push.
    /// - Throws: the failure of OpenSSL; the writer may then have a part of the value.
    public static func encode(
        _ push: StoredPush, due: Int64, sealedBy cipher: ValueCipher, scratch: inout ByteWriter,
        into writer: inout ByteWriter
    ) throws(CipherFailure) -> Int {
        let due = DueBytes(due)
        withUnsafeBytes(of: due) { writer.append($0) }
        scratch.removeAll()
        push.encode(into: &scratch)
        try cipher.seal(
            scratch.bytes, at: .item(partition: push.partition, offset: push.offset),
            suspended: push.suspendedTopic, into: &writer)
        return DueBytes.count
    }

    /// Returns the fault for which a record's value can't be read with these keys; nil for all other values. The value
    /// isn't decrypted.
    /// - Parameter keyring: nil: encryption is off.
    public static func missingKey(
        of key: UnsafeRawBufferPointer?, _ value: UnsafeRawBufferPointer?, with keyring: StoreKeyring?
    ) -> SealedValueError? {
        guard let value, let sealed = StoredBytes.sealedPush(value), let key,
            case .item? = ChangelogKey(key), let fault = SealedValue.fault(of: sealed, with: keyring),
            fault.isOfKey
        else { return nil }
        return fault
    }
}
