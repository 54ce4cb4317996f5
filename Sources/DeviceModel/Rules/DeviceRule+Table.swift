/// Text, basis and source of each rule, as the page and `GET /api/rules` show them.
extension DeviceRule {
    /// Sentence that explains the step to a reader.
    public var text: String { entry.text }
    public var basis: RuleBasis { entry.basis }
    /// Page or report that the rule is taken from.
    public var source: String { entry.source }

    private var entry: (basis: RuleBasis, source: String, text: String) {
        switch self {
        case .accepted:
            (
                .documented, "Handling notification responses from APNs",
                "APNs accepted the push. Acceptance is not delivery."
            )
        case .unknownToken:
            (
                .documented, "Handling notification responses from APNs",
                "No device has this token: BadDeviceToken."
            )
        case .otherEnvironment:
            (
                .documented, "Registering your app with APNs",
                "The token belongs to the other environment: BadDeviceToken."
            )
        case .otherTopic:
            (
                .documented, "Handling notification responses from APNs",
                "The token belongs to another topic: DeviceTokenNotForTopic."
            )
        case .tokenGone:
            (
                .documented, "Handling notification responses from APNs",
                "The token is no longer active: 410 Unregistered."
            )
        case .tokenExpired:
            (
                .assumed, "Handling notification responses from APNs",
                "The token has expired: 410 ExpiredToken."
            )
        case .lostToUninstalled:
            (
                .observed, "Viewing the status of push notifications",
                "APNs accepted and lost the push, because 410 starts later than the token ends."
            )
        case .adopted:
            (
                .assumed, "setting unknown-tokens",
                "The simulator made a device for this unknown token."
            )
        case .storedPoweredOff:
            (
                .documented, "Sending notification requests to APNs",
                "APNs stores the push, because the device is switched off."
            )
        case .storedOffline:
            (
                .documented, "Sending notification requests to APNs",
                "APNs stores the push, because the device has no network."
            )
        case .storedForPower:
            (
                .documented, "Sending notification requests to APNs",
                "APNs keeps the push for a good moment, because its priority is 5 or 1."
            )
        case .replacedInStorage:
            (
                .documented, "Sending notification requests to APNs",
                "A newer push took the place, because APNs stores one push for an app and device."
            )
        case .notStored:
            (
                .documented, "Sending notification requests to APNs",
                "APNs dropped the push, because its expiration is 0 or past and the device is unreachable."
            )
        case .expiredInStorage:
            (
                .documented, "Sending notification requests to APNs",
                "The push expired before the device was reachable."
            )
        case .storedTooLong:
            (
                .documented, "Viewing the status of push notifications",
                "APNs dropped the push after 30 days."
            )
        case .lostFromStorage:
            (
                .documented, "Viewing the status of push notifications",
                "APNs dropped the stored push, because its token is no longer active."
            )
        case .deliveredFromStorage:
            (
                .documented, "Sending notification requests to APNs",
                "The stored push reached the device."
            )
        case .deliveredNow:
            (
                .documented, "Sending notification requests to APNs",
                "The push reached the device."
            )
        case .notInstalled:
            (
                .documented, "Viewing the status of push notifications",
                "The app is not installed."
            )
        case .neverLaunched:
            (
                .observed, "reports of developers",
                "The app was never launched, so nothing is shown."
            )
        case .notAuthorized:
            (
                .documented, "Asking permission to use notifications",
                "The user was not asked for permission yet, so nothing is shown."
            )
        case .denied:
            (
                .documented, "Asking permission to use notifications",
                "The user denied notifications, so nothing is shown."
            )
        case .provisional:
            (
                .documented, "Asking permission to use notifications",
                "Provisional permission: the notification centre only, without banner, sound and badge."
            )
        case .nothingToShow:
            (
                .assumed, "no text found",
                "The payload has nothing to present."
            )
        case .banner:
            (
                .observed, "Declaring your actionable notification types",
                "A banner appeared, because the device is unlocked."
            )
        case .lockScreen:
            (
                .observed, "Declaring your actionable notification types",
                "The lock screen shows the notification."
            )
        case .list:
            (
                .documented, "UNUserNotificationCenter",
                "The notification is in the notification centre."
            )
        case .sound:
            (
                .documented, "Generating a remote notification",
                "The sound was played."
            )
        case .badge:
            (
                .documented, "Generating a remote notification",
                "The badge was set."
            )
        case .badgeRemoved:
            (
                .documented, "Generating a remote notification",
                "The badge was removed."
            )
        case .noAlerts:
            (
                .documented, "UNNotificationSettings",
                "Alerts are off for this app."
            )
        case .noBanner:
            (
                .documented, "UNNotificationSettings",
                "Banners are off for this app."
            )
        case .noLockScreen:
            (
                .documented, "UNNotificationSettings",
                "The lock screen is off for this app."
            )
        case .noList:
            (
                .documented, "UNNotificationSettings",
                "The notification centre is off for this app."
            )
        case .noSound:
            (
                .documented, "UNNotificationSettings",
                "Sounds are off for this app."
            )
        case .noBadge:
            (
                .documented, "UNNotificationSettings",
                "Badges are off for this app."
            )
        case .muted:
            (
                .documented, "UNNotificationInterruptionLevel",
                "The mute switch silenced the sound."
            )
        case .criticalSound:
            (
                .documented, "Generating a remote notification",
                "The critical sound ignored mute switch and Focus."
            )
        case .passive:
            (
                .documented, "UNNotificationInterruptionLevel",
                "Passive: the list only, without light and sound."
            )
        case .timeSensitive:
            (
                .documented, "UNNotificationInterruptionLevel",
                "Time-sensitive: passes summary and Focus."
            )
        case .timeSensitiveNotEntitled:
            (
                .observed, "Apple Developer Forums 683630",
                "Time-sensitive acts as active, because the app lacks the entitlement."
            )
        case .timeSensitiveOff:
            (
                .documented, "UNNotificationInterruptionLevel",
                "Time-sensitive acts as active, because the user has switched it off."
            )
        case .critical:
            (
                .documented, "UNNotificationInterruptionLevel",
                "Critical: passes summary, Focus and mute switch."
            )
        case .criticalNotEntitled:
            (
                .assumed, "no text found",
                "Critical acts as active, because the app lacks entitlement or permission."
            )
        case .silencedByFocus:
            (
                .documented, "UNNotificationInterruptionLevel",
                "The Focus silenced the notification; it is in the list."
            )
        case .allowedByFocus:
            (
                .documented, "UNNotificationInterruptionLevel",
                "The Focus allows this app."
            )
        case .filteredByFocus:
            (
                .documented, "SetFocusFilterIntent",
                "The Focus filter silenced the notification by its filter criteria."
            )
        case .waitsForSummary:
            (
                .observed, "UNNotificationSettings",
                "The notification waits for the scheduled summary."
            )
        case .shownInSummary:
            (
                .observed, "UNNotificationSettings",
                "The scheduled summary shows the notification."
            )
        case .foregroundShown:
            (
                .documented, "userNotificationCenter(_:willPresent:withCompletionHandler:)",
                "The app is in front and chose this presentation."
            )
        case .foregroundSilent:
            (
                .documented, "userNotificationCenter(_:willPresent:withCompletionHandler:)",
                "The app is in front and chose no presentation."
            )
        case .foregroundNoDelegate:
            (
                .documented, "userNotificationCenter(_:willPresent:withCompletionHandler:)",
                "The app is in front without a delegate: presentation as it arrived."
            )
        case .previewsHidden:
            (
                .documented, "UNShowPreviewsSetting",
                "The preview is hidden."
            )
        case .unknownCategory:
            (
                .documented, "Declaring your actionable notification types",
                "The category is not registered, so there are no actions."
            )
        case .unknownSound:
            (
                .assumed, "UNNotificationSound",
                "The sound file does not exist: the default sound."
            )
        case .unknownString:
            (
                .assumed, "no text found",
                "The strings table lacks the key, so the key itself is shown."
            )
        case .replacedInPlace:
            (
                .documented, "UNNotificationRequest",
                "A notification with the same identifier replaced the former one and moved up."
            )
        case .replacedPending:
            (
                .documented, "UNNotificationRequest",
                "The request replaced a pending one with the same identifier."
            )
        case .droppedFromList:
            (
                .assumed, "settings maximum-delivered, delivered-room",
                "The list or the room of all lists is full, so the oldest notification was dropped."
            )
        case .removedByUser:
            (
                .documented, "UNUserNotificationCenter",
                "The user cleared the notification."
            )
        case .removedByApp:
            (
                .documented, "UNUserNotificationCenter",
                "The app removed the notification."
            )
        case .opened:
            (
                .documented, "UNNotificationResponse",
                "The user tapped the notification; the app opened."
            )
        case .actionChosen:
            (
                .documented, "UNNotificationResponse",
                "The user chose an action."
            )
        case .dismissed:
            (
                .documented, "UNNotificationDismissActionIdentifier",
                "The user dismissed the notification, and the app was notified."
            )
        case .dismissalNotReported:
            (
                .documented, "UNNotificationDismissActionIdentifier",
                "The app learns nothing of the dismissal, because the category lacks the option."
            )
        case .wokeApp:
            (
                .documented, "Pushing background updates to your app",
                "The silent push woke the app."
            )
        case .noBackgroundMode:
            (
                .documented, "Pushing background updates to your app",
                "The app lacks the background mode remote-notification."
            )
        case .backgroundRefreshOff:
            (
                .documented, "backgroundRefreshStatus",
                "Background App Refresh is off."
            )
        case .lowPowerMode:
            (
                .observed, "backgroundRefreshStatus",
                "Low Power Mode holds silent pushes."
            )
        case .forceQuit:
            (
                .documented, "application(_:didReceiveRemoteNotification:fetchCompletionHandler:)",
                "The user force-quit the app, so nothing wakes it."
            )
        case .heldForBudget:
            (
                .documented, "Pushing background updates to your app",
                "The silent push is held, because the budget of wakes is used up."
            )
        case .replacedWhileHeld:
            (
                .documented, "Pushing background updates to your app",
                "A newer silent push replaced the held one."
            )
        case .droppedAtReset:
            (
                .assumed, "Pushing background updates to your app",
                "The held push was dropped at the reset of the budget."
            )
        case .handlerNotCalled:
            (
                .documented, "application(_:didReceiveRemoteNotification:fetchCompletionHandler:)",
                "The system ended the app, because it did not call the handler within 30 seconds."
            )
        case .voipCall:
            (
                .documented, "PKPushType",
                "The app was launched and reported a call."
            )
        case .voipNotReported:
            (
                .documented, "PKPushType",
                "The app was ended, because it reported no call."
            )
        case .voipStopped:
            (
                .documented, "PKPushType",
                "VoIP launches have stopped, because the app failed to report calls."
            )
        case .handedToApp:
            (
                .documented, "Registering your app with APNs",
                "The app or its extension received the push."
            )
        case .reloaded:
            (
                .documented, "Updating widgets with WidgetKit push notifications",
                "The widget or control reloaded."
            )
        case .locationBudget:
            (
                .documented, "Creating a location push service extension",
                "The budget of location queries is used up."
            )
        case .extensionRan:
            (
                .documented, "UNNotificationServiceExtension",
                "The service extension has changed the notification."
            )
        case .extensionSkippedNoAlert:
            (
                .documented, "Modifying content in newly delivered notifications",
                "The service extension was not run, because there is no alert."
            )
        case .extensionSkippedNone:
            (
                .documented, "Modifying content in newly delivered notifications",
                "The payload asks for a service extension; the app has none."
            )
        case .extensionSkippedAlertsOff:
            (
                .documented, "Modifying content in newly delivered notifications",
                "The service extension was not run, because alerts are off."
            )
        case .extensionTimedOut:
            (
                .documented, "UNNotificationServiceExtension",
                "The service extension ran out of time: the original is shown."
            )
        case .extensionBestAttempt:
            (
                .documented, "UNNotificationServiceExtension",
                "The service extension ran out of time and handed over its changes so far."
            )
        case .extensionTooMany:
            (
                .assumed, "setting maximum-extension-runs",
                "Too many service extensions run at once: the original is shown."
            )
        case .extensionCrashed:
            (
                .observed, "reports of developers",
                "The service extension crashed: the original is shown."
            )
        case .extensionHid:
            (
                .observed, "entitlement com.apple.developer.usernotifications.filtering",
                "The service extension hid the notification."
            )
        case .extensionEmpty:
            (
                .observed, "Apple Developer Forums 696068",
                "Empty content without the filtering entitlement: the original is shown."
            )
        case .extensionLocked:
            (
                .observed, "reports of developers",
                "The key is unreadable before the first unlock: the original is shown."
            )
        case .shownAfterStart:
            (
                .assumed, "UNNotificationServiceExtension",
                "The device was switched off while the service extension ran: the original came at its start, without sound."
            )
        case .decrypted:
            (
                .documented, "Modifying content in newly delivered notifications",
                "The service extension decrypted the content."
            )
        case .decryptionFailed:
            (
                .documented, "Modifying content in newly delivered notifications",
                "Decryption failed: the original is shown."
            )
        case .attachmentAdded:
            (
                .documented, "UNNotificationAttachment",
                "The service extension attached a file."
            )
        case .attachmentRefused:
            (
                .documented, "UNNotificationAttachment",
                "The attachment is missing, too large or of a wrong type: shown without it."
            )
        case .activityStarted:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The Live Activity started."
            )
        case .activityUpdated:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The Live Activity was updated."
            )
        case .activityEnded:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The Live Activity ended."
            )
        case .activityAlerted:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The update has an alert: the screen lights up."
            )
        case .activityStale:
            (
                .documented, "ActivityState",
                "The stale date has passed."
            )
        case .activityDismissed:
            (
                .documented, "Displaying live data with Live Activities",
                "The Live Activity was removed."
            )
        case .activityTooLong:
            (
                .documented, "Displaying live data with Live Activities",
                "The system ended the Live Activity after eight hours."
            )
        case .activityUnknownType:
            (
                .assumed, "Starting and updating Live Activities with ActivityKit push notifications",
                "The app has no Live Activity of this type, so nothing starts."
            )
        case .activityNotDecoded:
            (
                .observed, "reports of developers",
                "The content state does not decode: the former state stays."
            )
        case .activityOutdated:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The timestamp is older than that of the last update: ignored."
            )
        case .activityAlreadyEnded:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The Live Activity has ended: the push is ignored."
            )
        case .activityOverBudget:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The budget of priority 10 updates is used up: throttled."
            )
        case .activityStartsUsedUp:
            (
                .observed, "reports of developers",
                "The device starts no more Live Activities of this app by push within this hour."
            )
        case .activityDisabled:
            (
                .documented, "ActivityAuthorizationError",
                "The user has switched Live Activities off."
            )
        case .activityLimit:
            (
                .observed, "ActivityAuthorizationError",
                "The app has its limit of Live Activities."
            )
        case .activityIncomplete:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "A required member of the payload is missing."
            )
        case .activityTooLarge:
            (
                .documented, "ActivityAuthorizationError",
                "Attributes and content state exceed 4 KB."
            )
        case .activityWrongEvent:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The token or channel takes no such event: start tokens take start; all others take update and end."
            )
        case .channelUnknown:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The channel does not exist: the start failed."
            )
        case .channelSubscribed:
            (
                .documented, "Starting and updating Live Activities with ActivityKit push notifications",
                "The Live Activity listens to a channel."
            )
        case .broadcastUnheard:
            (
                .documented, "Sending broadcast push notification requests to APNs",
                "No Live Activity listens to the channel."
            )
        case .broadcastReplayed:
            (
                .documented, "Sending channel management requests to APNs",
                "The channel's stored broadcast reached the device at its return."
            )
        }
    }
}
