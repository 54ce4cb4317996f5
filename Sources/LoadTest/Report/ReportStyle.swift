/// Style, script and frame of a page. The page's policy permits these two by their hashes, and nothing else.
enum ReportStyle {
    /// `openssl dgst -sha256 -binary | base64` of `style` and of `script`; a test compares them.
    static let styleHash = "xG6bskkvMxRlAKxl8lZEOqIv5I33ed94skHyGRA69jk="
    static let scriptHash = "IgbU0F/2aRWu/PJY96Q2lJ3L3D7gz8sLl7yl6+7DzVo="

    static func page(title: String, body: String) -> String {
        let policy =
            "default-src 'none'; img-src data:; style-src 'sha256-\(styleHash)'; script-src 'sha256-\(scriptHash)';"
            + " base-uri 'none'; form-action 'none'"
        return """
            <!DOCTYPE html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta http-equiv="Content-Security-Policy" content="\(policy)">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <meta name="referrer" content="no-referrer">
            <title>\(Markup.escaped(title))</title>
            <link rel="icon" href="data:,">
            <style>\(style)</style>
            </head>
            <body>
            \(body)<script>\(script)</script>
            </body>
            </html>

            """
    }

    static let style = """

        :root{--ground:#fff;--ink:#1a1f29;--soft:#4d5666;--line:#d3d9e2;--panel:#f5f7fa;--good:#0a6635;--bad:#a8122a;
        --warn:#fff3d1;--warn-line:#c08a00;--link:#0b4fae;--strip:#e4e9f1;--band:#eef1f6;--hatch:#d6dce6;
        --flag:#39424f;--flag-ink:#fff;--c0:#1d5fc4;--c1:#b34a00;--c2:#0d7a45;--c3:#8425b8;--c4:#c01048;--c5:#0b6f80}
        @media (prefers-color-scheme:dark){:root{--ground:#11151c;--ink:#e7ebf2;--soft:#abb5c4;--line:#38414f;--panel:#191f28;
        --good:#6fdc9d;--bad:#ff909d;--warn:#352a0c;--warn-line:#d9a521;--link:#8fbcff;--strip:#2a3340;--band:#1d2430;
        --hatch:#333d4c;--flag:#d5dce8;--flag-ink:#11151c;--c0:#80b3ff;--c1:#ffab66;--c2:#67dd9b;--c3:#d6a4ff;--c4:#ff8fb0;
        --c5:#63d9ec}}
        *{box-sizing:border-box}
        html{-webkit-text-size-adjust:100%}
        body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
        "Liberation Sans",sans-serif;overflow-wrap:anywhere}
        header,main,footer{max-width:1280px;margin:0 auto;padding:0 20px}
        header{padding-top:20px}
        h1{font-size:1.75rem;line-height:1.2;margin:0 0 4px}
        h2{font-size:1.3rem;line-height:1.25;margin:44px 0 10px;padding-top:10px;border-top:1px solid var(--line)}
        h3,h4{font-size:1rem;line-height:1.3;margin:0}
        h3.part{margin-top:22px}
        p{margin:6px 0;max-width:75ch}
        a{color:var(--link)}
        a:focus-visible,summary:focus-visible,.scroll:focus-visible,pre:focus-visible,input:focus-visible{outline:3px solid
        var(--link);outline-offset:2px}
        .skip{position:absolute;left:-999px}
        .skip:focus{left:12px;top:8px;background:var(--ground);padding:6px 10px;z-index:2}
        .soft{color:var(--soft)}
        nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;padding:0;margin:12px 0 0}
        nav a{display:inline-block;padding:3px 0}
        .verdict{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;margin:16px 0 8px;padding:12px 16px;border:1px
        solid var(--line);border-left:8px solid var(--soft);border-radius:6px;background:var(--panel);max-width:none}
        .verdict strong{font-size:1.5rem;line-height:1.2}
        .verdict.passed{border-left-color:var(--good)}
        .verdict.failed{border-left-color:var(--bad)}
        .passed strong,.met{color:var(--good)}
        .failed strong,.missed{color:var(--bad)}
        .met,.missed{font-weight:600}
        .warnings{margin:12px 0;padding:10px 16px;background:var(--warn);border:1px solid var(--warn-line);border-radius:6px}
        .warnings ul{margin:4px 0;padding-left:20px}
        .warnings h3{margin:0}
        .cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:14px 0;padding:0}
        .cards div{border:1px solid var(--line);border-radius:6px;padding:8px 12px;background:var(--panel)}
        .cards dt{color:var(--soft);font-size:.85rem}
        .cards dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
        .scroll{overflow-x:auto;max-width:100%;margin:10px 0}
        table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
        caption{text-align:left;color:var(--soft);padding:0 0 4px}
        th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
        thead th{vertical-align:bottom;border-bottom:2px solid var(--soft)}
        tbody th{font-weight:500}
        .n{text-align:right;white-space:nowrap}
        .hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
        caption.hidden{display:block}
        .plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,460px),1fr));gap:28px 32px;margin-top:14px}
        figure{margin:0;min-width:0}
        .plots figure{display:grid;grid-template-rows:subgrid;grid-template-columns:minmax(0,1fr);grid-row:span 5;row-gap:0;
        align-items:start}
        figcaption p{margin:2px 0;color:var(--soft);font-size:.9rem}
        .legend{display:flex;flex-wrap:wrap;gap:0 16px;list-style:none;margin:4px 0;padding:0;font-size:.9rem}
        .legend li{display:flex;align-items:center;gap:6px;min-width:0}
        .swatch{width:36px;height:12px;flex:none}
        svg.plot{display:block;width:100%;height:auto;touch-action:pan-y}
        svg text{fill:var(--ink);font-size:12px}
        svg .tick,svg .name{fill:var(--soft)}
        svg .small{font-size:11px;fill:var(--soft)}
        .grid{stroke:var(--line);stroke-width:1;fill:none}
        .axis,.edge{stroke:var(--soft);stroke-width:1;fill:none}
        .edge{stroke-width:.6;stroke-dasharray:1 2}
        .strip{fill:var(--strip)}
        .band{fill:var(--band)}
        .hatch{stroke:var(--hatch);stroke-width:1;fill:none}
        .mark{stroke:var(--flag);stroke-width:1;stroke-dasharray:3 2;fill:none}
        .span{fill:var(--flag);fill-opacity:.08}
        .reach{stroke:var(--flag);stroke-width:2;fill:none}
        .flag{fill:var(--flag)}
        svg .flag-text{fill:var(--flag-ink);font-size:10px;font-weight:600}
        .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
        .marker{stroke-width:1.6;fill:var(--ground)}
        .cursor{stroke:var(--ink);stroke-width:1}
        .interval{stroke-width:3;fill:none}.arrow{stroke-width:2;fill:none}
        .intervals{max-width:640px;margin-top:14px}
        .intervals text{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round}
        .c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
        .reader{display:flex;flex-wrap:wrap;gap:0 12px;align-items:center;font-size:.85rem;min-height:2.2em}
        .reader input{width:100%;max-width:220px;accent-color:var(--link)}
        .reader p{margin:0;flex:1 1 200px;min-width:0}
        details{margin:4px 0}
        summary{cursor:pointer;color:var(--link);font-size:.9rem;padding:3px 0}
        details .scroll{max-height:320px;overflow-y:auto}
        pre{overflow-x:auto;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px 12px;
        font:13px/1.45 ui-monospace,"Liberation Mono",monospace;overflow-wrap:normal}
        code{font:.9em ui-monospace,"Liberation Mono",monospace}
        .empty{border:1px dashed var(--line);border-radius:6px;padding:10px 14px;align-self:start}
        footer{margin-top:40px;padding-bottom:30px;color:var(--soft);font-size:.9rem}
        @media (max-width:560px){header,main,footer{padding:0 14px}header{padding-top:14px}svg.plot text{font-size:16px}
        svg.plot .small{font-size:14px}svg.plot .flag-text{font-size:12px}.plots{gap:28px}th,td{padding-right:8px}}
        @media print{@page{margin:14mm}
        :root{--ground:#fff;--ink:#000;--soft:#333;--line:#bbb;--panel:#fff;--good:#064a26;--bad:#8a0d21;--warn:#fff;
        --warn-line:#000;--link:#000;--strip:#e4e9f1;--band:#f3f5f8;--hatch:#c9d0db;--flag:#222;--flag-ink:#fff;--c0:#1d5fc4;
        --c1:#b34a00;--c2:#0d7a45;--c3:#8425b8;--c4:#c01048;--c5:#0b6f80}
        body{font-size:10.5pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}
        header,main,footer{max-width:none;padding:0}
        nav,.skip,.reader,details{display:none}
        details[open]{display:block}
        .scroll,details .scroll{overflow:visible;max-height:none}
        h2{break-after:avoid;margin-top:22pt}
        figure,tr,.warnings,.verdict,.cards{break-inside:avoid}
        .plots{grid-template-columns:1fr 1fr;gap:12pt 14pt}
        svg.plot text{font-size:15px}svg.plot .small{font-size:13px}svg.plot .flag-text{font-size:11px}
        table{font-size:8pt}th,td,caption{padding:3px 8px 3px 0;overflow-wrap:anywhere}pre{white-space:pre-wrap;overflow-wrap:anywhere}th,.n{white-space:normal}thead th{overflow-wrap:normal}tbody th{min-width:4.5em}
        .intervals{max-width:120mm}}

        """

    /// Cursor through the plots: a slider below each plot reads its table. The page is complete without the script.
    static let script = #"""

        "use strict";
        (() => {
        const groups = new Map();
        for (const figure of document.querySelectorAll("figure[data-cursor]")) {
        const svg = figure.querySelector("svg.plot");
        const rows = [...figure.querySelectorAll("tbody tr")];
        if (!svg || rows.length < 2) continue;
        const head = [...figure.querySelectorAll("thead th")].map((cell) => cell.textContent);
        const box = document.createElement("div");
        const input = document.createElement("input");
        const text = document.createElement("p");
        box.className = "reader";
        input.type = "range";
        input.min = 0;
        input.max = rows.length - 1;
        input.value = 0;
        input.setAttribute("aria-label", "Read a value of " + figure.querySelector("figcaption :is(h2,h3)").textContent);
        text.setAttribute("aria-hidden", "true");
        box.append(input, text);
        svg.after(box);
        const line = svg.querySelector(".cursor");
        const show = (index) => {
        const row = rows[Math.min(index, rows.length - 1)];
        const cells = [...row.children].map((cell) => cell.textContent);
        const words = head[0] + " " + cells[0] + ": " + cells.slice(1).map((cell, at) => head[at + 1] + " " + cell).join("; ");
        input.value = index;
        input.setAttribute("aria-valuetext", words);
        text.textContent = words;
        line.setAttribute("transform", "translate(" + row.dataset.x + " 0)");
        line.setAttribute("visibility", "visible");
        };
        const group = groups.get(figure.dataset.cursor) ?? [];
        groups.set(figure.dataset.cursor, group);
        group.push(show);
        const all = (index) => group.forEach((one) => one(index));
        input.setAttribute("aria-valuetext", head[0] + " " + rows[0].children[0].textContent);
        input.addEventListener("input", () => all(+input.value));
        svg.addEventListener("pointermove", (event) => {
        const matrix = svg.getScreenCTM();
        if (!matrix) return;
        const x = (event.clientX - matrix.e) / matrix.a;
        let nearest = 0;
        rows.forEach((row, at) => {
        if (Math.abs(row.dataset.x - x) < Math.abs(rows[nearest].dataset.x - x)) nearest = at;
        });
        all(nearest);
        });
        }
        })();

        """#
}
