import APNS
import Configuration
import HTTP2

/// Checks the files of keys, certificates and authorities. Each fault has the place of the setting that names the file.
struct CredentialCheck {
    let configuration: Configuration
    let places: SettingPlaces
    /// Seconds of Unix time.
    let now: Int64

    /// Returns faults that keep a credential from being loaded.
    func problems() -> [ConfigurationProblem] {
        var problems: [ConfigurationProblem] = []
        if let file = configuration.apns.caFile, let fault = authorityFault(file) {
            problems.append(problem(file, "ca-file", else: "apns.ca-file", fault))
        }
        for credential in configuration.credentials {
            problems += self.problems(of: credential)
            guard let file = credential.endpoint?.caFile, file != configuration.apns.caFile,
                let fault = authorityFault(file)
            else { continue }
            problems.append(problem(file, "ca-file", else: "\(section(of: credential)).ca-file", fault))
        }
        guard problems.isEmpty else { return problems }
        // Checks what is left: names, limits, the proxy's password.
        do throws(WorkerError) {
            _ = try CredentialPoolPlanner(configuration).plan()
            return []
        } catch {
            let place = places.place(of: placedKey(in: error.description))
            return [ConfigurationProblem(key: "", location: place.location, message: error.description)]
        }
    }

    /// Returns faults of certificates that can be loaded: their dates and topics.
    func certificateProblems() -> [ConfigurationProblem] {
        configuration.credentials.flatMap { credential -> [ConfigurationProblem] in
            guard case .certificate(let path, _) = credential.kind,
                let certificate = try? CertificateFile(reading: .file(path))
            else { return [] }
            let apps = configuration.apps.filter { $0.credentials.contains(credential.name) }
            let faults = CertificateVerdict.faults(
                of: certificate, bundleIdentifiers: apps.flatMap(\.topics), now: now)
            return faults.map {
                problem(
                    path, "certificate-file", else: "\(section(of: credential)).certificate-file",
                    "\(path): \($0)")
            }
        }
    }

    private func problems(of credential: Configuration.Credential) -> [ConfigurationProblem] {
        let section = section(of: credential)
        func problem(_ file: String, _ setting: String, _ fault: String) -> ConfigurationProblem {
            self.problem(file, setting, else: "\(section).\(setting)", fault)
        }
        switch credential.kind {
        case .token:
            return credential.kind.files.compactMap { file in
                do throws(SigningKeyError) {
                    _ = try SigningKey(path: file.path)
                    return nil
                } catch {
                    return problem(file.path, file.setting, error.description)
                }
            }
        case .certificate(let certificateFile, let keyFile):
            var problems: [ConfigurationProblem] = []
            do throws(TLSError) {
                _ = try CertificateFile(reading: .file(certificateFile))
            } catch {
                problems.append(problem(certificateFile, "certificate-file", error.description))
            }
            do throws(TLSError) {
                try CertificateFile.checkPrivateKey(in: .file(keyFile))
            } catch {
                problems.append(problem(keyFile, "key-file", error.description))
            }
            let identity = TLSIdentity(
                certificateChain: .file(certificateFile), privateKey: .file(keyFile))
            if let matches = try? CertificateFile.isMatching(identity), !matches {
                problems.append(
                    problem(
                        keyFile, "key-file",
                        "the key \(keyFile) doesn't belong to the certificate \(certificateFile); name the key that the certificate was requested with"
                    ))
            }
            return problems
        }
    }

    /// Returns the fault of a file of authorities, or nil.
    private func authorityFault(_ file: String) -> String? {
        var options = ClientTLSOptions()
        options.trust = .authorities(.file(file))
        do throws(TLSError) {
            _ = try TLSContext.client(options)
            return nil
        } catch {
            return error.description
        }
    }

    /// Returns the path of a credential's settings. Settings written inside of an app belong to the app.
    private func section(of credential: Configuration.Credential) -> String {
        let inside = configuration.apps.firstIndex { app in
            app.credentials == [credential.name] && credential.name == "app \(app.name)"
        }
        return inside.map { "apps[\($0)].credential" } ?? "credentials.\(credential.name)"
    }

    private func problem(
        _ file: String, _ setting: String, else key: String, _ fault: String
    ) -> ConfigurationProblem {
        let place = places.place(ofFile: file, ending: setting) ?? places.place(of: key)
        return ConfigurationProblem(key: place.key, location: place.location, message: fault)
    }

    /// Returns the setting that an error's text begins with.
    private func placedKey(in text: String) -> String {
        String(text.prefix { $0 != ":" && $0 != " " })
    }
}
