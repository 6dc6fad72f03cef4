//! Requests and answers of HTTP.

use crate::metrics::{Format, Metrics};
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a request: its line and its headers.
pub(super) const MOST_BYTES: usize = 8 << 10;
/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// The header in which Prometheus states its timeout.
const TIMEOUT: &str = "X-Prometheus-Scrape-Timeout-Seconds";
/// The longest time for a scrape, whatever the header says.
const LONGEST: Duration = Duration::from_secs(120);
/// The time for the answer to reach Prometheus, but at most a quarter of the whole.
const RESERVE: Duration = Duration::from_millis(500);

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Request {
    /// The metrics, and the time limit if the client states one.
    Page(Wanted, Option<Duration>),
    /// Anything else.
    Other(Reply),
}

/// The requested form of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) format: Format,
    /// Without the page itself, for `HEAD`.
    pub(super) is_head: bool,
}

/// An answer without metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Welcome,
    Malformed,
    NotFound,
    WrongMethod,
    TooLarge,
    Busy,
}

impl Request {
    /// Parses a request; `None` if more of it must come.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(status) if status.is_partial() => return None,
            Ok(_) => {}
            Err(httparse::Error::TooManyHeaders) => return Some(Request::Other(Reply::TooLarge)),
            Err(_) => return Some(Request::Other(Reply::Malformed)),
        }
        let is_head = match request.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Some(Request::Other(Reply::WrongMethod)),
        };
        let path = request.path.unwrap_or_default();
        let header = |name: &str| {
            let named = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
            named.filter_map(|header| std::str::from_utf8(header.value).ok()).next()
        };
        Some(match path.split('?').next().unwrap_or_default() {
            "/metrics" => {
                let format = Format::preferred(header("Accept").unwrap_or_default());
                let allowed = header(TIMEOUT).and_then(allowed);
                Request::Page(Wanted { format, is_head }, allowed)
            }
            "/" => Request::Other(Reply::Welcome),
            _ => Request::Other(Reply::NotFound),
        })
    }
}

/// Returns the time in which to answer a client that waits for this many seconds.
fn allowed(seconds: &str) -> Option<Duration> {
    let seconds: f64 = seconds.trim().parse().ok()?;
    let whole = Duration::try_from_secs_f64(seconds).ok()?.min(LONGEST);
    Some(whole - RESERVE.min(whole / 4))
}

/// Returns the answer with a page, as its head and its body.
pub(super) fn answer(metrics: &Arc<Metrics>, wanted: Wanted) -> [String; 2] {
    let page = metrics.page(wanted.format);
    let head = start("200 OK", wanted.format.content_type(), page.len());
    [head, if wanted.is_head { String::new() } else { page }]
}

/// Returns an answer without metrics.
pub(super) fn refusal(reply: Reply) -> [String; 2] {
    let (status, text) = match reply {
        Reply::Welcome => ("200 OK", "gpuws export: the metrics are at /metrics\n"),
        Reply::Malformed => ("400 Bad Request", "not an HTTP/1 request\n"),
        Reply::NotFound => ("404 Not Found", "the metrics are at /metrics\n"),
        Reply::WrongMethod => ("405 Method Not Allowed", "only GET and HEAD\n"),
        Reply::Busy => ("503 Service Unavailable", "too many concurrent scrapes\n"),
        Reply::TooLarge => ("431 Request Header Fields Too Large", "too many headers\n"),
    };
    [start(status, "text/plain; charset=utf-8", text.len()), text.to_owned()]
}

fn start(status: &str, content_type: &str, length: usize) -> String {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {allow}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Request> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn scrape_names_its_format_and_its_time() {
        let open = Wanted { format: Format::OpenMetrics, is_head: false };
        let text = Wanted { format: Format::Text, is_head: false };
        let scrape = "GET /metrics?a=b HTTP/1.1\r\nhost: x\r\naccept: \
                      application/openmetrics-text;version=1.0.0\r\n\
                      x-prometheus-scrape-timeout-seconds: 10\r\n\r\n";
        let allowed = Some(Duration::from_millis(9500));
        assert_eq!(parsed(scrape), Some(Request::Page(open, allowed)));
        for end in 1..scrape.len() {
            assert_eq!(parsed(&scrape[..end]), None, "{end}");
        }
        assert_eq!(parsed("GET /metrics HTTP/1.0\r\n\r\n"), Some(Request::Page(text, None)));
        let head = Wanted { is_head: true, ..text };
        assert_eq!(parsed("HEAD /metrics HTTP/1.1\r\n\r\n"), Some(Request::Page(head, None)));
    }

    #[test]
    fn allowed_time_is_bounded() {
        for (seconds, millis) in [("1", 750), ("0.1", 75), ("0", 0), ("1e9", 119_500)] {
            assert_eq!(allowed(seconds), Some(Duration::from_millis(millis)), "{seconds}");
        }
        for seconds in ["", "-1", "NaN", "inf", "1e300", "10 s"] {
            assert_eq!(allowed(seconds), None, "{seconds}");
        }
    }

    #[test]
    fn other_requests_are_refused() {
        let many = "a: b\r\n".repeat(MOST_HEADERS + 1);
        for (text, reply) in [
            ("GET / HTTP/1.1\r\n\r\n", Reply::Welcome),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", Reply::NotFound),
            ("GET ../../etc/passwd HTTP/1.1\r\n\r\n", Reply::NotFound),
            ("POST /metrics HTTP/1.1\r\ncontent-length: 9\r\n\r\n", Reply::WrongMethod),
            ("\x16\x03\x01\x02", Reply::Malformed),
            ("GET /metrics HTTP/9.9\r\n\r\n", Reply::Malformed),
            (&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"), Reply::TooLarge),
        ] {
            assert_eq!(parsed(text), Some(Request::Other(reply)), "{text}");
        }
    }
}
