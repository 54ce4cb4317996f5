#include "CSimulatorPage.h"

// The compiler reads the files itself: a hundred kilobytes cost it milliseconds, as Swift literals most of a minute.
#ifndef __has_embed
#error "this compiler lacks #embed; Swift 6.2 and later have it"
#endif

static const unsigned char activity_js[] = {
#embed "../APNSSimulator/Page/activity.js"
};
static const unsigned char api_js[] = {
#embed "../APNSSimulator/Page/api.js"
};
static const unsigned char card_js[] = {
#embed "../APNSSimulator/Page/card.js"
};
static const unsigned char code_js[] = {
#embed "../APNSSimulator/Page/code.js"
};
static const unsigned char command_js[] = {
#embed "../APNSSimulator/Page/command.js"
};
static const unsigned char controls_js[] = {
#embed "../APNSSimulator/Page/controls.js"
};
static const unsigned char device_js[] = {
#embed "../APNSSimulator/Page/device.js"
};
static const unsigned char devices_js[] = {
#embed "../APNSSimulator/Page/devices.js"
};
static const unsigned char dom_js[] = {
#embed "../APNSSimulator/Page/dom.js"
};
static const unsigned char editor_js[] = {
#embed "../APNSSimulator/Page/editor.js"
};
static const unsigned char faults_js[] = {
#embed "../APNSSimulator/Page/faults.js"
};
static const unsigned char hint_js[] = {
#embed "../APNSSimulator/Page/hint.js"
};
static const unsigned char history_js[] = {
#embed "../APNSSimulator/Page/history.js"
};
static const unsigned char icon_svg[] = {
#embed "../APNSSimulator/Page/icon.svg"
};
static const unsigned char icons_js[] = {
#embed "../APNSSimulator/Page/icons.js"
};
static const unsigned char index_html[] = {
#embed "../APNSSimulator/Page/index.html"
};
static const unsigned char lists_js[] = {
#embed "../APNSSimulator/Page/lists.js"
};
static const unsigned char live_js[] = {
#embed "../APNSSimulator/Page/live.js"
};
static const unsigned char new_device_js[] = {
#embed "../APNSSimulator/Page/new-device.js"
};
static const unsigned char notification_js[] = {
#embed "../APNSSimulator/Page/notification.js"
};
static const unsigned char page_css[] = {
#embed "../APNSSimulator/Page/page.css"
};
static const unsigned char page_js[] = {
#embed "../APNSSimulator/Page/page.js"
};
static const unsigned char parts_js[] = {
#embed "../APNSSimulator/Page/parts.js"
};
static const unsigned char phone_css[] = {
#embed "../APNSSimulator/Page/phone.css"
};
static const unsigned char phone_js[] = {
#embed "../APNSSimulator/Page/phone.js"
};
static const unsigned char pushes_js[] = {
#embed "../APNSSimulator/Page/pushes.js"
};
static const unsigned char rows_js[] = {
#embed "../APNSSimulator/Page/rows.js"
};
static const unsigned char rules_de_js[] = {
#embed "../APNSSimulator/Page/rules-de.js"
};
static const unsigned char rules_js[] = {
#embed "../APNSSimulator/Page/rules.js"
};
static const unsigned char time_js[] = {
#embed "../APNSSimulator/Page/time.js"
};
static const unsigned char words_de_js[] = {
#embed "../APNSSimulator/Page/words-de.js"
};
static const unsigned char words_en_js[] = {
#embed "../APNSSimulator/Page/words-en.js"
};
static const unsigned char words_js[] = {
#embed "../APNSSimulator/Page/words.js"
};

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"
#define PICTURE "image/svg+xml"
#define FILE_OF(path, type, bytes) {path, type, bytes, sizeof bytes}

static const struct sluice_page_file files[] = {
    FILE_OF("/activity.js", SCRIPT, activity_js),
    FILE_OF("/api.js", SCRIPT, api_js),
    FILE_OF("/card.js", SCRIPT, card_js),
    FILE_OF("/code.js", SCRIPT, code_js),
    FILE_OF("/command.js", SCRIPT, command_js),
    FILE_OF("/controls.js", SCRIPT, controls_js),
    FILE_OF("/device.js", SCRIPT, device_js),
    FILE_OF("/devices.js", SCRIPT, devices_js),
    FILE_OF("/dom.js", SCRIPT, dom_js),
    FILE_OF("/editor.js", SCRIPT, editor_js),
    FILE_OF("/faults.js", SCRIPT, faults_js),
    FILE_OF("/hint.js", SCRIPT, hint_js),
    FILE_OF("/history.js", SCRIPT, history_js),
    FILE_OF("/icon.svg", PICTURE, icon_svg),
    FILE_OF("/icons.js", SCRIPT, icons_js),
    FILE_OF("/", HTML, index_html),
    FILE_OF("/lists.js", SCRIPT, lists_js),
    FILE_OF("/live.js", SCRIPT, live_js),
    FILE_OF("/new-device.js", SCRIPT, new_device_js),
    FILE_OF("/notification.js", SCRIPT, notification_js),
    FILE_OF("/page.css", CSS, page_css),
    FILE_OF("/page.js", SCRIPT, page_js),
    FILE_OF("/parts.js", SCRIPT, parts_js),
    FILE_OF("/phone.css", CSS, phone_css),
    FILE_OF("/phone.js", SCRIPT, phone_js),
    FILE_OF("/pushes.js", SCRIPT, pushes_js),
    FILE_OF("/rows.js", SCRIPT, rows_js),
    FILE_OF("/rules-de.js", SCRIPT, rules_de_js),
    FILE_OF("/rules.js", SCRIPT, rules_js),
    FILE_OF("/time.js", SCRIPT, time_js),
    FILE_OF("/words-de.js", SCRIPT, words_de_js),
    FILE_OF("/words-en.js", SCRIPT, words_en_js),
    FILE_OF("/words.js", SCRIPT, words_js),
};

size_t sluice_page_file_count(void) { return sizeof files / sizeof files[0]; }

const struct sluice_page_file *sluice_page_file_at(size_t index) {
    return index < sluice_page_file_count() ? &files[index] : NULL;
}
