//! The page of `gpuws report`: one self-contained HTML file.
//!
//! It is XML too, so that a test can check that it is well-formed. All external text is escaped;
//! there is no script.

use super::picture::{self, NAME};
use super::table::{cells, energy_only};
use super::{By, Usage};
use gpu_core::escape_markup;
use std::fmt::Write as _;

/// The maximum number of jobs that are listed.
const JOBS: usize = 50;

/// Colours that people with colour blindness can distinguish (Okabe and Ito), with those of text
/// and lines for light and dark screens.
const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1b1f24;--dim:#59636e;--line:#d8dee4;--page:#ffffff;\
--held:#9fb8d6;--used:#0072b2;--idle:#e69f00}
@media (prefers-color-scheme:dark){:root{--text:#e6edf3;--dim:#9198a1;--line:#30363d;\
--page:#0d1117;--held:#3d5a80;--used:#56b4e9;--idle:#e69f00}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);\
max-width:800px;margin:2em auto;padding:0 1em}
h1{font-size:1.4em}h2{font-size:1.1em;margin:2em 0 .5em}
p,li{margin:.3em 0}.dim,caption{color:var(--dim)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.2em .5em;border-bottom:1px solid var(--line);\
white-space:nowrap;width:4em}
th{color:var(--dim);font-weight:normal}
.name{text-align:left;white-space:normal;overflow-wrap:anywhere;width:auto;min-width:7em}
tr.sum td{color:var(--dim)}
.scroll{overflow-x:auto}
@media (max-width:480px){body{font-size:13px;margin:1em auto;padding:0 .5em}\
th,td{padding:.2em .25em;width:auto}.name{min-width:5em}}
svg{width:100%;height:auto}
svg .grid{stroke:var(--line)}svg .axis{fill:var(--dim);font-size:12px}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}
svg .held,.key.held{fill:var(--held);background:var(--held)}
svg .used,.key.used{fill:var(--used);background:var(--used)}
svg .idle,.key.idle{fill:var(--idle);background:var(--idle)}
.key{display:inline-block;width:.8em;height:.8em;margin-right:.3em;border-radius:2px}
.item{display:inline-block;margin-right:1em}
";

const SHADES: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#8c959f"];

impl Usage<'_> {
    /// Returns the page.
    pub fn html(&self) -> String {
        let title = escape_markup(&self.title(), 300);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width\"/>\n\
             <title>GPU usage: {title}</title>\n<style>\n{STYLE}"
        );
        for (index, colour) in SHADES.iter().enumerate() {
            let _ = writeln!(page, ".c{index}{{fill:{colour};background:{colour}}}");
        }
        let extent = escape_markup(&self.extent(), 300);
        let _ = write!(
            page,
            "</style>\n</head>\n<body>\n<h1>GPU usage</h1>\n<p>{title}</p>\n\
             <p class=\"dim\">{extent}</p>\n"
        );
        let notes = self.notes();
        if !notes.is_empty() {
            page.push_str("<ul>\n");
            for note in &notes {
                let _ = writeln!(page, "<li>{}</li>", escape_markup(note, 500));
            }
            page.push_str("</ul>\n");
        }
        self.pictures(&mut page);
        for by in By::ALL {
            self.section(&mut page, by);
        }
        page.push_str(DEFINITIONS);
        page.push_str("</body>\n</html>\n");
        page
    }

    fn pictures(&self, page: &mut String) {
        let shades = picture::shades(self);
        if shades.is_empty() {
            page.push_str("<p>No user held a GPU in this period.</p>\n");
            return;
        }
        let _ = write!(
            page,
            "<h2>GPU-hours by user</h2>\n{}{}",
            legend([("held", "held"), ("used", "used"), ("idle", "held without compute")]),
            picture::bars(self)
        );
        let legend = legend(shades.iter().map(|shade| (&*shade.class, &*shade.name)));
        let _ = write!(
            page,
            "<h2>GPUs used over time</h2>\n{legend}{}<h2>GPU memory held over time</h2>\n{}",
            picture::used(self, &shades),
            picture::memory(self, &shades)
        );
    }

    fn section(&self, page: &mut String, by: By) {
        let (heading, column) = match by {
            By::User => ("Users", "user"),
            By::Job => ("Jobs", "job"),
            By::Gpu => ("GPUs", "GPU"),
            By::Day => ("Days", "day"),
        };
        let user = if by == By::Job { "<th class=\"name\">user</th>" } else { "" };
        let _ = write!(
            page,
            "<h2>{heading}</h2>\n<div class=\"scroll\"><table>\n<tr><th class=\"name\">{column}</th>{user}\
             <th>held h</th><th>used h</th><th>idle h</th><th>peak</th><th>energy</th></tr>\n"
        );
        let mut rows = self.rows(by);
        let left_out = rows.len().saturating_sub(JOBS);
        if by == By::Job {
            rows.truncate(JOBS);
        }
        let mut add = |class: &str, name: &str, user: Option<&str>, cells: [String; 5]| {
            let name = escape_markup(name, 80);
            let user = match (by, user) {
                (By::Job, user) => {
                    format!("<td class=\"name\">{}</td>", escape_markup(user.unwrap_or(""), NAME))
                }
                _ => String::new(),
            };
            let _ = write!(page, "<tr{class}><td class=\"name\">{name}</td>{user}");
            for cell in &cells {
                let _ = write!(page, "<td>{}</td>", escape_markup(cell, NAME));
            }
            page.push_str("</tr>\n");
        };
        let total = self.accounts.total();
        for row in &rows {
            add("", &row.name, row.user.as_deref(), cells(&row.amounts, total));
        }
        let sum = " class=\"sum\"";
        if let Some(energy) = self.unattributed(by) {
            add(sum, "not attributed", None, energy_only(energy, total));
        }
        add(sum, "total", None, cells(total, total));
        page.push_str("</table></div>\n");
        if by == By::Job && left_out > 0 {
            let _ = writeln!(page, "<p class=\"dim\">and {left_out} more</p>");
        }
    }
}

/// Returns the meaning of colours, by their class.
fn legend<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut legend = String::from("<p class=\"dim\">");
    for (class, name) in items {
        let name = escape_markup(name, NAME);
        let _ = write!(
            legend,
            "<span class=\"item\"><span class=\"key {class}\"></span>{name}</span> "
        );
    }
    legend.push_str("</p>\n");
    legend
}

const DEFINITIONS: &str = "<h2>What the columns mean</h2>\n<ul class=\"dim\">\n\
<li>held: GPU-hours with memory on a GPU. Users who share a GPU each hold it in proportion to \
                           their memory, so that no hour counts twice.</li>\n\
<li>used: GPU-hours in which kernels ran, as sampled by the driver.</li>\n\
<li>idle: the part of the held hours without compute.</li>\n\
<li>peak: the most memory held at any time.</li>\n\
<li>energy: the energy of the GPU, in proportion to the time used; the rest, such as idle power, \
                           is not attributed.</li>\n\
<li>unlisted: memory in use that no listed process accounts for.</li>\n\
</ul>\n";
