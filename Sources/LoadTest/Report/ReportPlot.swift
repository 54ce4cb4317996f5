/// Line plot with its data, as a figure of a page.
///
/// Lines differ by dashes and markers as well as by colour. The figure has a legend, a description and a table.
struct Plot {
    struct Series {
        var name: String
        /// A value for each of the plot's `xs`; nil interrupts the line.
        var values: [Double?]

        init(_ name: String, _ values: [Double?]) {
            self.name = name
            self.values = values.map { $0.flatMap { $0.isFinite ? $0 : nil } }
        }
    }

    /// Phase of a run.
    struct Band {
        var name: String
        var from: Double
        var to: Double
        /// Bands of other phases are hatched.
        var isMain: Bool
    }

    /// Event of a run, with its number in the table of events.
    struct Mark {
        var label: String
        var at: Double
        var until: Double?
    }

    /// Unique in the page; letters, digits and hyphens.
    var identifier: String
    var title: String
    /// Sentence below the title; empty for none.
    var note = ""
    /// Sentence instead of a plot without any value.
    var missing = "Not measured: no worker was asked, or none answered."
    var xName: String
    var yName: String
    var xs: [Double]
    /// Texts of `xs` in the table.
    var xLabels: [String]
    var x: Scale
    var y: Scale
    var series: [Series]
    var bands: [Band] = []
    var marks: [Mark] = []
    /// Indices of `xs` that the table alone has.
    var hidden: Set<Int> = []
    /// Indices of `xs` that the table has.
    var rows: [Int]
    /// Plots of the same group share a cursor.
    var group: String

    private static let width = 520.0
    private static let height = 284.0
    private static let area = (left: 72.0, right: 508.0, top: 56.0, bottom: 246.0)
    private static let dashes = ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4"]

    private func px(_ value: Double) -> Double {
        Self.area.left + x.position(value) * (Self.area.right - Self.area.left)
    }
    private func py(_ value: Double) -> Double {
        Self.area.bottom - y.position(value) * (Self.area.bottom - Self.area.top)
    }

    /// Whether any series has a value.
    var hasValues: Bool { series.contains { $0.values.contains { $0 != nil } } }

    /// Returns the figure. `level` is the level of its heading.
    func figure(level: Int = 3) -> String {
        let heading = "<h\(level)>\(Markup.escaped(title))</h\(level)>"
        guard hasValues else {
            return
                #"<figure class="empty"><figcaption>\#(heading)</figcaption><p>\#(Markup.escaped(missing))</p></figure>"#
                + "\n"
        }
        var text = #"<figure data-cursor="\#(group)"><figcaption>\#(heading)"#
        if !note.isEmpty { text += "<p>\(Markup.escaped(note))</p>" }
        text += "</figcaption>\n" + legend() + svg()
        text += "<details><summary>Data of “\(Markup.escaped(title))”</summary>\n"
        text += table() + "</details></figure>\n"
        return text
    }

    private func legend() -> String {
        var text = #"<ul class="legend">"#
        for (index, line) in series.enumerated() {
            text += #"<li><svg class="swatch" viewBox="0 0 36 12" aria-hidden="true" focusable="false">"#
            text += #"<path class="line c\#(index % 6)"\#(Self.dash(index)) d="M1 6H35"/>"#
            text += Self.marker(index, 18, 6) + "</svg>\(Markup.escaped(line.name))</li>"
        }
        return text + "</ul>\n"
    }

    private func table() -> String {
        var text =
            #"<div class="scroll" role="group" tabindex="0" aria-label="\#(Markup.escaped(title)), table"><table>"#
        text +=
            #"<caption class="hidden">\#(Markup.escaped(title)): \#(Markup.escaped(yName))</caption><thead><tr>"#
        text += #"<th scope="col">\#(Markup.escaped(xName))</th>"#
        for line in series { text += #"<th scope="col" class="n">\#(Markup.breakable(line.name))</th>"# }
        text += "</tr></thead><tbody>\n"
        for row in rows where xs.indices.contains(row) {
            text +=
                #"<tr data-x="\#(Self.coordinate(px(xs[row])))"><th scope="row">\#(Markup.escaped(xLabels[row]))</th>"#
            for line in series { text += #"<td class="n">\#(FigureText.number(line.values[row]))</td>"# }
            text += "</tr>\n"
        }
        return text + "</tbody></table></div>\n"
    }

    /// Least, mean and greatest value of each line, in words.
    var summary: String {
        let lines = series.map { line -> String in
            let values = line.values.compactMap(\.self)
            guard let least = values.min(), let greatest = values.max() else {
                return "\(line.name): no value"
            }
            let mean = values.reduce(0) { $0 + $1 / Double(values.count) }
            return "\(line.name): least \(FigureText.number(least)), mean \(FigureText.number(mean)),"
                + " greatest \(FigureText.number(greatest))"
        }
        var text = "\(yName) by \(xName). " + lines.joined(separator: "; ") + "."
        if !bands.isEmpty {
            text +=
                " Phases: "
                + bands.map {
                    "\($0.name) from \(FigureText.number($0.from)) to \(FigureText.number($0.to)) s"
                }
                .joined(separator: ", ") + "."
        }
        if !marks.isEmpty { text += " Events: " + marks.map(\.label).joined(separator: ", ") + "." }
        return text
    }

    func svg() -> String {
        let (left, right, top, bottom) = Self.area
        let c = Self.coordinate
        var text = #"<svg class="plot" role="img" viewBox="0 0 \#(c(Self.width)) \#(c(Self.height))""#
        text += #" aria-labelledby="\#(identifier)-t" aria-describedby="\#(identifier)-d" focusable="false">"#
        text += #"<title id="\#(identifier)-t">\#(Markup.escaped(title))</title>"#
        text += #"<desc id="\#(identifier)-d">\#(Markup.escaped(summary))</desc>"# + "\n"
        text += bandsMarkup()
        for tick in y.ticks {
            let at = c(py(tick.value))
            text += #"<path class="grid" d="M\#(c(left)) \#(at)H\#(c(right))"/>"#
            text +=
                #"<text class="tick" x="\#(c(left - 6))" y="\#(at)" dy="4" text-anchor="end">\#(tick.label)</text>"#
        }
        for tick in x.ticks {
            let at = c(px(tick.value))
            text += #"<path class="axis" d="M\#(at) \#(c(bottom))v4"/>"#
            // A label at the right end must not leave the plot.
            let isLast = px(tick.value) > right - 16
            text += #"<text class="tick" x="\#(isLast ? c(right + 10) : at)" y="\#(c(bottom + 17))""#
            text += #" text-anchor="\#(isLast ? "end" : "middle")">\#(tick.label)</text>"#
        }
        text += #"<path class="axis" d="M\#(c(left)) \#(c(bottom))H\#(c(right))"/>"#
        text += #"<text class="name" x="2" y="12">\#(Markup.escaped(yName))</text>"#
        text += #"<text class="name" x="\#(c((left + right) / 2))" y="\#(c(Self.height - 4))""#
        text += #" text-anchor="middle">\#(Markup.escaped(xName))</text>"# + "\n"
        text += marksMarkup()
        for index in series.indices { text += line(index) }
        text += #"<path class="cursor" d="M0 \#(c(top))V\#(c(bottom))" visibility="hidden"/>"#
        return text + "</svg>\n"
    }

    private func bandsMarkup() -> String {
        let (_, _, top, bottom) = Self.area
        let c = Self.coordinate
        var text = ""
        if bands.contains(where: { !$0.isMain }) {
            text +=
                #"<defs><pattern id="\#(identifier)-h" width="7" height="7" patternUnits="userSpaceOnUse">"#
            text += #"<path class="hatch" d="M-1 8L8 -1"/></pattern></defs>"#
        }
        for band in bands {
            let (from, to) = (px(band.from), px(band.to))
            guard to > from else { continue }
            let place = #"x="\#(c(from))" width="\#(c(to - from))""#
            text += #"<rect class="strip" \#(place) y="\#(c(top - 15))" height="14"/>"#
            if !band.isMain {
                text += #"<rect class="band" \#(place) y="\#(c(top))" height="\#(c(bottom - top))"/>"#
                text +=
                    #"<rect fill="url(#\#(identifier)-h)" \#(place) y="\#(c(top))" height="\#(c(bottom - top))"/>"#
            }
            text += #"<path class="edge" d="M\#(c(from)) \#(c(top - 15))V\#(c(bottom))"/>"#
            // A name that has no room is left out; the table of phases has all names.
            if Double(band.name.count) * 7.5 + 4 < to - from {
                text += #"<text class="small" x="\#(c((from + to) / 2))" y="\#(c(top - 4))""#
                text += #" text-anchor="middle">\#(Markup.escaped(band.name))</text>"#
            }
        }
        return text + "\n"
    }

    private func marksMarkup() -> String {
        let (left, right, top, bottom) = Self.area
        let c = Self.coordinate
        var ends = [left - 20, left - 20]
        var text = ""
        for mark in marks.sorted(by: { $0.at < $1.at }) {
            let at = px(mark.at)
            text += #"<path class="mark" d="M\#(c(at)) \#(c(top))V\#(c(bottom))"/>"#
            let until = mark.until.map(px)
            if let until, until > at {
                text += #"<rect class="span" x="\#(c(at))" width="\#(c(until - at))" y="\#(c(top))""#
                text += #" height="\#(c(bottom - top))"/>"#
            }
            // A label that has no room is left out; the table of events has all of them.
            let size = Double(mark.label.count) * 8 + 4
            let start = min(max(left, at - size / 2), right - size)
            guard let lane = ends.firstIndex(where: { start >= $0 + 2 }) else { continue }
            let y = top - 27 - Double(lane) * 13
            if let until, until > start + size {
                text += #"<path class="reach" d="M\#(c(start + size)) \#(c(y + 6))H\#(c(until))"/>"#
            }
            ends[lane] = start + size
            text +=
                #"<rect class="flag" x="\#(c(start))" y="\#(c(y))" width="\#(c(size))" height="12" rx="2"/>"#
            text += #"<text class="flag-text" x="\#(c(start + size / 2))" y="\#(c(y + 9.5))""#
            text += #" text-anchor="middle">\#(Markup.escaped(mark.label))</text>"#
        }
        return text + "\n"
    }

    private func line(_ index: Int) -> String {
        let values = series[index].values
        var path = ""
        var markers = ""
        let step = max(1, values.count / 8)
        for (place, value) in values.enumerated() {
            guard let value, !hidden.contains(place) else { continue }
            let point = (px(xs[place]), py(value))
            let isFirst = place == 0 || values[place - 1] == nil
            let isLast = place + 1 == values.count || values[place + 1] == nil || hidden.contains(place + 1)
            path += "\(isFirst ? "M" : "L")\(Self.coordinate(point.0)) \(Self.coordinate(point.1))"
            let isTurn = (place + step - (index * step / max(1, series.count)) % step).isMultiple(of: step)
            if (isFirst && isLast) || isTurn { markers += Self.marker(index, point.0, point.1) }
        }
        return #"<path class="line c\#(index % 6)"\#(Self.dash(index)) d="\#(path)"/>\#(markers)"# + "\n"
    }

    private static func dash(_ index: Int) -> String {
        let dash = dashes[index % dashes.count]
        return dash.isEmpty ? "" : #" stroke-dasharray="\#(dash)""#
    }

    static func marker(_ index: Int, _ x: Double, _ y: Double) -> String {
        let at = "\(coordinate(x)) \(coordinate(y))"
        let path =
            switch index % 7 {
            case 0: "M\(at)m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z"
            case 1: "M\(at)m-3 -3h6v6h-6z"
            case 2: "M\(at)m0 -4l4 7h-8z"
            case 3: "M\(at)m0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z"
            case 4: "M\(at)m-3.2 -3.2l6.4 6.4m0 -6.4l-6.4 6.4"
            case 5: "M\(at)m-4 0h8m-4 -4v8"
            default: "M\(at)m0 4l4 -7h-8z"
            }
        return #"<path class="marker c\#(index % 6)" d="\#(path)"/>"#
    }

    /// A coordinate with one decimal.
    static func coordinate(_ value: Double) -> String {
        let tenths = Int((min(max(value.isFinite ? value : 0, -1e6), 1e6) * 10).rounded())
        let (whole, rest) = (abs(tenths) / 10, abs(tenths) % 10)
        return "\(tenths < 0 ? "-" : "")\(whole)\(rest == 0 ? "" : ".\(rest)")"
    }
}
