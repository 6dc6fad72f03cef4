//! The pictures of a job as one HTML page with tooltips.

use super::Timeline;
use super::history::{Life, Origin};
use super::scale::thousands;
use gpu_core::{Bytes, amount, escape_markup};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");
/// The digests that the page permits: those of [`SCRIPT`] and of the two styles. The browser does
/// not run anything else, even if a recording injects it.
const SCRIPT_DIGEST: &str = "VytKdmBk6lQVpaiL1nStAt8GWutyp6zaGMivMh1PYw0=";
const STYLE_DIGESTS: [&str; 2] = [
    "vuDK2C0EzjuGtuo2tSXRmC1/Nsq4bwYNItRQAHdO/8U=",
    "uLIODvKiWppgbwV3qjFNdzzoPiPwi0b9afBiJY7Ohq0=",
];
/// The number of rows in the list of the largest allocations at the peak.
const LISTED: usize = 25;

/// Returns a page with the picture of each timeline and a list of the largest allocations at its
/// peak. It loads no resources, and runs only its own script.
pub fn page(timelines: &[Timeline<'_>]) -> String {
    let name = timelines.first().map_or("", |timeline| timeline.name.as_str());
    let styles = STYLE_DIGESTS.map(|digest| format!("'sha256-{digest}'")).join(" ");
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{SCRIPT_DIGEST}'; style-src {styles}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>GPU memory of {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <p id=\"details\">Point at a band, a mark or a segment to see its details; click to pin \
         them, click again to unpin.</p>\n",
        escape_markup(name, 80)
    );
    for timeline in timelines {
        let _ = write!(page, "<div class=\"scroll\">\n{}</div>\n", timeline.svg());
        timeline.list(&mut page);
    }
    let _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

/// Allocations of one size from one call site.
#[derive(Default)]
struct Group {
    count: u64,
    /// Their first and last event.
    events: Option<(usize, usize)>,
}

impl Timeline<'_> {
    /// Adds the list of live allocations at the peak, by size and call site.
    fn list(&self, page: &mut String) {
        let at = self.map_time().min(self.history.used.len().saturating_sub(1));
        let is_live = |life: &&Life| life.from <= at && life.to.is_none_or(|to| to > at);
        let mut groups: BTreeMap<_, Group> = BTreeMap::new();
        for life in self.history.lives.iter().filter(is_live) {
            let before = matches!(life.origin, Origin::Start(_));
            let group = groups.entry((life.size, before, self.asked_by(life))).or_default();
            group.count += 1;
            let event = self.event_at(life.from);
            let (first, last) = group.events.unwrap_or((event, event));
            group.events = Some((first.min(event), last.max(event)));
        }
        let mut largest: Vec<_> = groups.into_iter().collect();
        largest.sort_by_key(|((size, ..), group)| Reverse(size * group.count));
        largest.truncate(LISTED);
        if largest.is_empty() {
            return;
        }
        let _ = writeln!(
            page,
            "<table>\n<caption>Largest allocations at event \
             {}</caption>\n<tr><th>total</th><th>allocations</th><th>from event</th><th>requested \
             by</th></tr>",
            thousands(self.event_at(at) as u64)
        );
        for ((size, before, asked_by), Group { count, events }) in largest {
            let event = |event: usize| thousands(event as u64);
            let from = match events {
                _ if before => "before recording".to_owned(),
                Some((first, last)) if first < last => {
                    format!("{} to {}", event(first), event(last))
                }
                events => events.map_or(String::new(), |(only, _)| event(only)),
            };
            let asked_by = asked_by.unwrap_or_else(|| "not recorded".to_owned());
            let (together, each) = (amount(Bytes(size * count)), amount(Bytes(size)));
            let _ = writeln!(
                page,
                "<tr><td>{together}</td><td>{} of {each}</td><td>{from}</td><td>{asked_by}</td></tr>",
                thousands(count)
            );
        }
        page.push_str("</table>\n");
    }
}

/// Returns the script and the styles of the page, each with its digest.
#[cfg(test)]
pub(super) fn allowed() -> [(String, &'static str); 3] {
    [
        (SCRIPT.to_owned(), SCRIPT_DIGEST),
        (STYLE.to_owned(), STYLE_DIGESTS[0]),
        (format!("\n{}", super::graph::STYLE), STYLE_DIGESTS[1]),
    ]
}
