import Configuration
import Glibc
import Kafka

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
        CredentialCheck(configuration: self, places: places, now: now).problems() + kafkaProblems(places)
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
                let key =
                    Self.property(in: error.message, own).map { "kafka.\(section).\($0)" }
                    ?? Self.property(in: error.message, kafka.properties).map { "kafka.properties.\($0)" }
                    ?? "kafka"
                let place = places.place(of: key)
                let problem = ConfigurationProblem(
                    key: key, location: place.location, message: error.message)
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

    /// Returns the setting of the property that a message of librdkafka names; nil when it names none of these. The
    /// longest name decides, because names can contain other names.
    private static func property(in message: String, _ properties: [Kafka.Property]) -> String? {
        properties.filter { message.contains($0.name) }
            .max { $0.name.utf8.count < $1.name.utf8.count }
            .map { $0.file == nil ? $0.name : "\($0.name)-file" }
    }
}
