import Testing

@testable import StoreEncryption

struct KeyFileTests {
    private static let first = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
    private static let second = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="

    private func read(_ text: String) -> Result<StoreKeyring, KeyFileError> {
        Array(text.utf8).withUnsafeBytes { bytes in
            do throws(KeyFileError) {
                return .success(try KeyFile.read(bytes, path: "keys"))
            } catch {
                return .failure(error)
            }
        }
    }

    @Test func firstKeyEncryptsAndAllDecrypt() throws {
        let text = "# made today\r\n\r\n\t2026-b  \(Self.first)\r\n  # older\na \(Self.second)"
        let keyring = try read(text).get()
        #expect(keyring.keys.map(\.name) == ["2026-b", "a"])
        #expect(keyring.primary.check == ValueCipherTests.key("other", 1).check)
        #expect(keyring.others.map(\.check) == [ValueCipherTests.key("other", 2).check])
        keyring.primary.withBytes { bytes in
            for index in 0..<32 { #expect(bytes[index] == 1) }
        }
    }

    @Test(arguments: [
        ("", nil, KeyFileError.Fault.empty),
        ("# nothing\n\n", nil, .empty),
        ("\n\(first)\n", 2, .form),
        ("a\n", 1, .form),
        ("seventeen-letters \(first)", 1, .name),
        ("a_b \(first)", 1, .name),
        ("ä \(first)", 1, .name),
        ("\(first) a", 1, .name),
        ("a \(first.dropLast())", 1, .key),
        ("a \(first)=", 1, .key),
        ("a \(first) # comment", 1, .key),
        ("a AQEBAQEBAQEBAQEBAQEBAQ==", 1, .key),
        ("a \(first.replacing("AQEB", with: "AQ-B", maxReplacements: 1))", 1, .key),
        ("a \(first)\na \(second)", 2, .repeatedName(of: 1)),
        ("a \(first)\n\nb \(first)", 3, .repeatedKey(of: 1)),
    ])
    func faultsNameTheirLine(text: String, line: Int?, fault: KeyFileError.Fault) {
        let error = KeyFileError(path: "keys", line: line, fault: fault)
        guard case .failure(let found) = read(text) else {
            Issue.record("the file was read")
            return
        }
        #expect(found == error)
        #expect(!found.description.contains("AQEB"))
        #expect(found.description.hasPrefix(line.map { "keys, line \($0) " } ?? "keys "))
    }

    @Test func numberOfKeysIsLimited() {
        let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
        let lines = (0..<65).map { number in
            "key-\(number) \(digits[number % 64])\(number < 64 ? "A" : "B")\(Self.first.dropFirst(2))"
        }
        #expect((try? read(lines.dropLast().joined(separator: "\n")).get())?.keys.count == 64)
        guard case .failure(let error) = read(lines.joined(separator: "\n")) else {
            Issue.record("the file was read")
            return
        }
        #expect(error.line == 65 && error.fault == .tooMany)
    }
}
