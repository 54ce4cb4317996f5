import Configuration
import Glibc
import Kafka
import SluiceModel
import StoreEncryption

extension Configuration {
    /// Checks the settings that only their users can judge. Keys, certificates and authorities are loaded. librdkafka
    /// properties are checked by making clients, which connect to nowhere. The checks find wrong names, values and
    /// `ssl.*` files, and values that would break a guarantee.
    ///
    /// - Parameters:
    ///   - places: places of the settings, from ``Configuration/loadWithPlaces(path:environment:)``.
    ///   - now: seconds of Unix time, for certificates.
    public func checkUsable(
        places: SettingPlaces, now: Int64 = Int64(time(nil))
    ) -> [ConfigurationProblem] {
        checkStartable(places: places) + certificateFaults(places: places, now: now)
    }

    /// Checks like ``checkUsable(places:now:)``, without dates and topics of certificates. A worker starts with such
    /// faults, because they affect the apps of the certificate only.
    public func checkStartable(places: SettingPlaces) -> [ConfigurationProblem] {
        CredentialCheck(configuration: self, places: places, now: 0).problems() + kafkaProblems(places)
            + passedFieldProblems(places) + storeKeyProblems(places) + commandTokenProblems(places)
    }

    /// Returns the fault of the store's key file.
    private func storeKeyProblems(_ places: SettingPlaces) -> [ConfigurationProblem] {
        guard let file = store?.encryption?.keyFile else { return [] }
        do throws(KeyFileError) {
            _ = try StoreKeyFile.read(file)
            return []
        } catch {
            let key = "store.encryption.key-file"
            return [
                ConfigurationProblem(
                    key: key, location: places.place(of: key).location, message: error.description)
            ]
        }
    }

    /// Returns the fault of the token for commands. Otherwise the first command of a bad day would find it.
    private func commandTokenProblems(_ places: SettingPlaces) -> [ConfigurationProblem] {
        guard let file = admin.tokenFile else { return [] }
        let fault: String
        switch SecretFile.read(file) {
        case .failure(let failure): fault = failure.text
        case .success(let token):
            guard token.utf8.count < Admin.leastTokenBytes else { return [] }
            fault =
                "\(file) has fewer than \(Admin.leastTokenBytes) bytes; make a token with `openssl rand -hex 16`"
        }
        let key = "admin.token-file"
        return [ConfigurationProblem(key: key, location: places.place(of: key).location, message: fault)]
    }

    /// Returns the names of fields among `jobs.pass-headers`: a field is read, and never returns on an outcome.
    private func passedFieldProblems(_ places: SettingPlaces) -> [ConfigurationProblem] {
        let fields = Set(JobField.allCases.compactMap { $0.headerName?.description })
        return jobs.passHeaders.filter { fields.contains($0.lowercased()) }.map { name in
            ConfigurationProblem(
                key: "jobs.pass-headers", location: places.place(of: "jobs.pass-headers").location,
                message: "`\(name)` is a field of jobs, which never returns on an outcome; remove the name")
        }
    }

    /// Returns faults of certificates that can be loaded: their dates, and topics of other apps.
    /// - Parameter now: seconds of Unix time.
    public func certificateFaults(
        places: SettingPlaces, now: Int64 = Int64(time(nil))
    ) -> [ConfigurationProblem] {
        CredentialCheck(configuration: self, places: places, now: now).certificateProblems()
    }

    private func kafkaProblems(_ places: SettingPlaces) -> [ConfigurationProblem] {
        let setup = KafkaSetup(kafka)
        var problems: [ConfigurationProblem] = []
        func check(
            _ properties: KafkaProperties, own: [Kafka.Property], section: String,
            _ make: (KafkaProperties) throws(KafkaError) -> Void
        ) {
            var properties = properties
            // Nothing listens there, and a refused connection is of no interest.
            properties["bootstrap.servers"] = "127.0.0.1:9"
            properties["log_level"] = "0"
            do throws(KafkaError) {
                try make(properties)
            } catch {
                let found =
                    Self.property(in: error.message, own).map { (section, $0) }
                    ?? Self.property(in: error.message, kafka.properties).map { ("properties", $0) }
                let key = found.map { section, property in
                    "kafka.\(section).\(property.name)\(property.file == nil ? "" : "-file")"
                }
                let place = places.place(of: key ?? "kafka")
                let problem = ConfigurationProblem(
                    key: key ?? "kafka", location: place.location,
                    message: Self.withoutContents(error.message, found?.1, own + kafka.properties))
                if !problems.contains(problem) { problems.append(problem) }
            }
        }
        check(setup.producer, own: kafka.producerProperties, section: "producer-properties") {
            properties throws(KafkaError) in
            _ = try KafkaProducer(properties: properties)
        }
        check(setup.consumer, own: kafka.consumerProperties, section: "consumer-properties") {
            properties throws(KafkaError) in
            _ = try KafkaConsumer(properties: properties, topics: []) { _ in }
        }
        return problems
    }

    /// Returns the property that a message of librdkafka names; nil when it names none of these. The longest name
    /// decides, because names can contain other names.
    private static func property(in message: String, _ properties: [Kafka.Property]) -> Kafka.Property? {
        properties.filter { message.contains($0.name) }
            .max { $0.name.utf8.count < $1.name.utf8.count }
    }

    /// Returns a message without the contents of files, which are secrets.
    ///
    /// librdkafka quotes an invalid value, or a part of the value. So only texts without a value are kept.
    ///
    /// - Parameter named: the property that the message names, or nil.
    private static func withoutContents(
        _ message: String, _ named: Kafka.Property?, _ properties: [Kafka.Property]
    ) -> String {
        if let named, let file = named.file {
            let keptTexts = [
                "No such configuration property", "the value must stay", "the property must not be set",
                "the value is not valid",
            ]
            let start = "kafka property \"\(named.name)\": "
            let isKept = keptTexts.contains { message.hasPrefix(start + $0) }
            return isKept
                ? message : start + "the content of \(file) can't be used; name the file of this property"
        }
        return properties.reduce(message) { text, property in
            property.file == nil ? text : text.replacing(property.value, with: "(the file's content)")
        }
    }
}
