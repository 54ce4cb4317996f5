import Admin
import ArgumentParser
import Foundation

struct ChannelsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "channels",
        abstract: "Create, list, show and delete the broadcast channels of an app.",
        discussion: """
            A broadcast updates or ends all Live Activities that were started with a channel. Each environment has \
            its own channels, at most 10,000 for an app. The identifier of a channel goes into the start of each \
            activity (input-push-channel) and into each broadcast job (channel-id).

            The app's credential comes from the worker's configuration. The requests go to Apple's servers of \
            channel management, or to --host and --port, for example of `sluice simulator --management-port`.

            A request that APNs throttles is sent again up to four times, after growing waits or the time that APNs \
            asks for.

            EXIT STATUS
              0   done
              1   APNs refused the request; the error names the reason and the remedy
              64  the command line is wrong
              69  APNs can't be reached
              78  the configuration, or a key or certificate that it names, is wrong
            """,
        subcommands: [Create.self, List.self, Show.self, Delete.self])

    struct Create: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a channel and print its identifier.",
            discussion: """
                The storage of a channel can't be changed later:
                  none    A broadcast reaches the devices that are online. Its expiration
                          must be 0. Such a channel may send more broadcasts.
                  newest  APNs keeps the newest broadcast until it expires, for at most
                          eight hours, for devices that come back.
                """)

        @Option(
            help: ArgumentHelp("Storage of the channel's broadcasts: none or newest.", valueName: "storage"))
        var storage: ChannelStorageArgument

        @OptionGroup var options: ChannelOptions

        func run() throws {
            let access = try options.access()
            let channel = try performing { try access.client.create(storage.storage) }
            guard options.json else {
                Terminal.output(channel)
                return
            }
            Terminal.output(
                access.document(["channel": channel, "message-storage-policy": storage.storage.rawValue]))
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the identifiers of all channels of an app.")

        @OptionGroup var options: ChannelOptions

        func run() throws {
            let access = try options.access()
            let channels = try performing { try access.client.list() }
            if options.json {
                Terminal.output(access.document(["channels": channels]))
                return
            }
            if channels.isEmpty {
                Terminal.error("\(access.client.app) has no channels in environment \(access.environment)")
            }
            for channel in channels where !Terminal.output(channel) { return }
        }
    }

    struct Show: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Show the storage of a channel.")

        @Argument(help: "Identifier of the channel, as `sluice channels list` shows it.")
        var channel: ChannelArgument

        @OptionGroup var options: ChannelOptions

        func run() throws {
            let access = try options.access()
            let channel = channel.text
            let (storage, pushType) = try performing { try access.client.read(channel) }
            if options.json {
                Terminal.output(
                    access.document([
                        "channel": channel, "message-storage-policy": storage.rawValue, "push-type": pushType,
                    ]))
                return
            }
            var table = TextTable()
            table.add("channel", channel)
            table.add("app", "\(access.client.app), \(access.environment)")
            table.add(
                "storage",
                storage == .none
                    ? "none: broadcasts must have the expiration 0"
                    : "newest broadcast, for at most eight hours")
            table.add("push type", pushType)
            for line in table.lines() { Terminal.output(line) }
        }
    }

    struct Delete: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Delete a channel for good.",
            discussion: """
                Activities that were started with the channel receive no more broadcasts, except perhaps a stored one. \
                The identifier is never given again. Asks on a terminal, unless --yes is given.
                """)

        @Argument(help: "Identifier of the channel, as `sluice channels list` shows it.")
        var channel: ChannelArgument

        @Flag(help: "Delete without asking.")
        var yes = false

        @OptionGroup var options: ChannelOptions

        func validate() throws {
            if !yes, isatty(STDIN_FILENO) != 1 {
                throw ValidationError(
                    "a deletion can't be undone, and there is no terminal to ask on; add --yes")
            }
        }

        func run() throws {
            let access = try options.access()
            let channel = channel.text
            if !yes {
                Terminal.ask(
                    "Delete \(channel) of \(access.client.app) in \(access.environment) for good? [y/N] ")
                guard let answer = readLine(), ["y", "yes"].contains(answer.lowercased()) else {
                    throw CommandFailure(.failure, "nothing was deleted")
                }
            }
            try performing { try access.client.delete(channel) }
            Terminal.output(
                options.json
                    ? access.document(["channel": channel, "deleted": true]) : "deleted \(channel)")
        }
    }
}

/// Storage on the command line.
struct ChannelStorageArgument: ExpressibleByArgument {
    let storage: ChannelStorage

    init?(argument: String) {
        switch argument {
        case "none": storage = .none
        case "newest": storage = .newest
        default: return nil
        }
    }

    static var allValueStrings: [String] { ["none", "newest"] }
}

/// A channel's identifier on the command line: base64, at most 256 characters.
struct ChannelArgument: ExpressibleByArgument {
    let text: String

    init?(argument: String) {
        let isBase64 = argument.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: "+/=_-".utf8.contains(byte)
            }
        }
        guard isBase64, (1...256).contains(argument.utf8.count) else { return nil }
        text = argument
    }
}

extension ChannelAccess {
    /// Returns a JSON document with app and environment.
    fileprivate func document(_ members: [String: Any]) -> String {
        JSONText.of(members.merging(["app": client.app, "environment": environment]) { member, _ in member })
    }
}

/// Runs a request, and converts its failure into the command's.
private func performing<Value>(_ request: () throws -> Value) throws -> Value {
    do {
        return try request()
    } catch let error as ChannelError {
        throw CommandFailure(error.status, error.description)
    }
}
