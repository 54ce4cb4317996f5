// APNS
