//! The pictures of a job as one page, which tells more of what is pointed at.

use super::Timeline;
use super::history::Life;
use super::scale::thousands;
use super::svg::escape;
use crate::explain::amount;
use gpu_core::Bytes;
use std::fmt::Write;

const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");
/// The digests that the page allows: of [`SCRIPT`], and of the two styles. Whatever a recording
/// might bring into the page besides does not run.
const SCRIPT_DIGEST: &str = "3OWH5273GQ3qCS3s2fFgGMe0kTASd88mvh1VYk+tSok=";
const STYLE_DIGESTS: [&str; 2] = [
    "yYrEV6p0x71lldb88ssnIh3n4H94EppCH7LaAnef32Q=",
    "uLIODvKiWppgbwV3qjFNdzzoPiPwi0b9afBiJY7Ohq0=",
];
/// How many of the largest allocations at the peak are listed.
const LISTED: usize = 25;

/// Returns a page with the picture of each timeline and a list of what was largest at its peak. It
/// loads nothing, and runs no script but its own.
pub fn page(timelines: &[Timeline<'_>]) -> String {
    let name = timelines.first().map_or("", |timeline| timeline.name.as_str());
    let styles = STYLE_DIGESTS.map(|digest| format!("'sha256-{digest}'")).join(" ");
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{SCRIPT_DIGEST}'; style-src {styles}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>GPU memory of {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <p id=\"told\">Point at a band, a mark or a segment to read what it is; click to keep it.</p>\n",
        escape(name, 80)
    );
    for timeline in timelines {
        let _ = write!(page, "<div class=\"scroll\">\n{}</div>\n", timeline.svg());
        timeline.list(&mut page);
    }
    let _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

impl Timeline<'_> {
    /// Adds the largest allocations that were live at the peak.
    fn list(&self, page: &mut String) {
        let at = self.map_time().min(self.history.used.len().saturating_sub(1));
        let is_live = |life: &&Life| life.from <= at && life.to.is_none_or(|to| to > at);
        let mut largest: Vec<&Life> = self.history.lives.iter().filter(is_live).collect();
        largest.sort_by_key(|life| (std::cmp::Reverse(life.size), life.from));
        largest.truncate(LISTED);
        if largest.is_empty() {
            return;
        }
        let _ = writeln!(
            page,
            "<table>\n<caption>The largest allocations at event {}</caption>\n<tr><th>size</th><th>from event</th><th>free at event</th><th>asked for by</th></tr>",
            thousands(self.place(at) as u64)
        );
        for life in largest {
            let from = match life.from {
                0 => "before the recording".to_owned(),
                time => thousands(self.place(time) as u64),
            };
            let to = life.to.map_or("not in the recording".to_owned(), |time| {
                thousands(self.place(time) as u64)
            });
            let asked_by = self.asked_by(life).unwrap_or_else(|| "not recorded".to_owned());
            let size = amount(Bytes(life.size));
            let _ = writeln!(
                page,
                "<tr><td>{size}</td><td>{from}</td><td>{to}</td><td>{asked_by}</td></tr>"
            );
        }
        page.push_str("</table>\n");
    }
}

/// Returns what stands in the page as script and styles, each with its digest.
#[cfg(test)]
pub(super) fn allowed() -> [(String, &'static str); 3] {
    [
        (SCRIPT.to_owned(), SCRIPT_DIGEST),
        (STYLE.to_owned(), STYLE_DIGESTS[0]),
        (format!("\n{}", super::graph::STYLE), STYLE_DIGESTS[1]),
    ]
}
