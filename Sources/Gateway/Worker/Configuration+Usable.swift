import Configuration
import Kafka

extension Configuration {
    /// Checks the settings that only their users can judge. Keys, certificates and authorities are loaded. librdkafka
    /// properties are checked by making clients, which connect to nowhere. The checks find wrong names, values and
    /// `ssl.*` files, and values that would break a guarantee.
    ///
    /// - Parameter name: the document's name in messages.
    public func checkUsable(name: String) -> [ConfigurationProblem] {
        credentialProblems(name) + kafkaProblems(name)
    }

    private func credentialProblems(_ name: String) -> [ConfigurationProblem] {
        do throws(WorkerError) {
            _ = try CredentialPoolPlanner(self).plan()
            return []
        } catch {
            let location = ConfigurationProblem.Location.file(name: name, line: 0, column: 0)
            return [ConfigurationProblem(key: "", location: location, message: error.description)]
        }
    }

    private func kafkaProblems(_ name: String) -> [ConfigurationProblem] {
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
                func isNamed(_ property: Kafka.Property) -> Bool {
                    error.message.contains("\"\(property.name)\"")
                }
                let key =
                    own.first(where: isNamed).map { "kafka.\(section).\($0.name)" }
                    ?? kafka.properties.first(where: isNamed).map { "kafka.properties.\($0.name)" } ?? "kafka"
                let problem = ConfigurationProblem(
                    key: key, location: .file(name: name, line: 0, column: 0), message: error.message)
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
}
