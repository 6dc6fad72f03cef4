//! The answer to a scrape, and its time.

use crate::served::{RealClock, Served};
use gpu_core::Clock;
use gpu_export::{Limits, Metrics};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OPEN: &str = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";

fn at_once(_: Duration) -> Metrics {
    Metrics::without_answer()
}

#[test]
fn page_has_requested_format_and_length() {
    let served = Served::start(Limits::default(), at_once);
    let text = served.scrape("");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
    assert!(text.contains("\ngpuws_up 0.0\n"), "{text}");
    let open = served.scrape(OPEN);
    assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0;"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    for answer in [&text, &open] {
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        assert_eq!(length.parse(), Ok(page.len()));
    }
    let head = served.ask("HEAD /metrics HTTP/1.1\r\n\r\n");
    let (head, page) = head.split_once("\r\n\r\n").unwrap();
    assert_eq!(page, "");
    assert_eq!(head, text.split_once("\r\n\r\n").unwrap().0, "as for GET");
    assert!(served.ask("GET / HTTP/1.1\r\n\r\n").ends_with("the metrics are at /metrics\n"));
    assert!(served.ask("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(served.ask("PUT /metrics HTTP/1.1\r\n\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
}

#[test]
fn endless_snapshot_yields_up_zero_within_scrape_timeout() {
    let (asked, times) = channel();
    let (release, held) = channel::<()>();
    let served =
        Served::start(Limits { reuse: Duration::ZERO, ..Limits::default() }, move |left| {
            asked.send(left).unwrap();
            let _ = held.recv();
            Metrics::default()
        });
    let clock = RealClock::new();
    for _ in 0..2 {
        let begin = clock.monotonic();
        let answer = served.scrape("X-Prometheus-Scrape-Timeout-Seconds: 1\r\n");
        assert!(answer.contains("\ngpuws_up 0.0\n"), "{answer}");
        // Not earlier, or a slow driver would be reported as silent.
        assert!(clock.monotonic() - begin >= Duration::from_millis(700));
    }
    // One snapshot was started, with the time of the scrape.
    let left = times.recv().unwrap();
    assert!(left > Duration::from_millis(100) && left <= Duration::from_millis(750), "{left:?}");
    assert!(times.try_recv().is_err(), "a second look waits for the first");
    let waits = served.connect(b"GET /metrics HTTP/1.1\r\n\r\n");
    drop(release);
    assert!(!waits.answer().contains("gpuws_up"), "the look that ended at last");
    assert!(!served.scrape("").contains("gpuws_up"), "the next look");
}

#[test]
fn concurrent_scrapes_share_a_snapshot() {
    let snapshots = Arc::new(AtomicUsize::new(0));
    let (counted, clock) = (Arc::clone(&snapshots), RealClock::new());
    let limits = Limits { reuse: Duration::ZERO, ..Limits::default() };
    let served = Served::start(limits, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        clock.sleep(Duration::from_millis(200));
        Metrics::without_answer()
    });
    let scrapes: Vec<_> =
        (0..20).map(|_| served.connect(b"GET /metrics HTTP/1.1\r\n\r\n")).collect();
    for scrape in scrapes {
        assert!(scrape.answer().contains("\ngpuws_up 0.0\n"));
    }
    let snapshots = snapshots.load(Ordering::Relaxed);
    assert!((1..=20 / 2).contains(&snapshots), "{snapshots}");
}

#[test]
fn scrape_soon_after_a_snapshot_reuses_it() {
    let snapshots = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&snapshots);
    let limits = Limits { reuse: Duration::from_secs(3600), ..Limits::default() };
    let served = Served::start(limits, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Metrics::without_answer()
    });
    for _ in 0..5 {
        served.scrape("");
    }
    assert_eq!(snapshots.load(Ordering::Relaxed), 1);
}

#[test]
fn short_scrape_does_not_report_driver_down_to_others() {
    // A driver that takes longer than half a second.
    let clock = RealClock::new();
    let limits = Limits { reuse: Duration::from_secs(3600), ..Limits::default() };
    let served = Served::start(limits, move |left| {
        let needs = Duration::from_millis(500);
        clock.sleep(needs.min(left));
        if left < needs { Metrics::without_answer() } else { Metrics::default() }
    });
    for _ in 0..3 {
        let short = served
            .connect(b"GET /metrics HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 0.2\r\n\r\n");
        let long = served.scrape("X-Prometheus-Scrape-Timeout-Seconds: 60\r\n");
        assert!(long.starts_with("HTTP/1.1 200 ") && !long.contains("gpuws_up"), "{long}");
        short.answer();
    }
}

#[test]
fn server_ends_with_its_sampler() {
    let gone = Mutex::new(());
    let served = Served::start(Limits::default(), move |_| {
        drop(gone.lock());
        panic!("a defect in a look")
    });
    assert_eq!(served.scrape(""), "");
    assert_eq!(served.failure(), "the snapshot thread has ended");
}

#[test]
fn snapshot_with_too_little_time_does_not_report_driver_down_later() {
    let (asked, times) = channel();
    let (release, held) = channel::<()>();
    let limits = Limits { reuse: Duration::from_secs(3600), ..Limits::default() };
    let mut first = true;
    let served = Served::start(limits, move |_| {
        asked.send(()).unwrap();
        let _ = held.recv();
        if std::mem::take(&mut first) { Metrics::without_answer() } else { Metrics::default() }
    });
    let short = "GET /metrics HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 1\r\n\r\n";
    let short = served.connect(short.as_bytes());
    times.recv().unwrap();
    drop(release);
    assert!(short.answer().contains("\ngpuws_up 0.0\n"));
    assert!(!served.scrape("").contains("gpuws_up"), "it has more time");
}

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn wall(&self) -> gpu_core::Timestamp {
        gpu_core::Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sleep(&self, _: Duration) {}
}

#[test]
fn snapshot_is_reused_only_within_its_time() {
    for (reuse, expected) in [(Duration::ZERO, 3), (Duration::from_millis(1), 1)] {
        let snapshots = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&snapshots);
        let served = Served::start_at(Still, Limits { reuse, ..Limits::default() }, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Metrics::default()
        });
        for _ in 0..3 {
            served.scrape("");
        }
        assert_eq!(snapshots.load(Ordering::Relaxed), expected, "{reuse:?}");
    }
}

#[test]
fn server_pauses_only_without_descriptors() {
    // A pause would never end on this clock.
    let served = Served::start_at(Still, Limits::default(), at_once);
    for _ in 0..3 {
        assert!(served.scrape("").starts_with("HTTP/1.1 200 "));
    }
    // A client that sends its request in parts, with the server waiting in between.
    use std::io::Write;
    let mut slow = served.connect(b"GET /metrics");
    assert!(served.scrape("").starts_with("HTTP/1.1 200 "));
    slow.0.write_all(b" HTTP/1.1\r\n\r\n").unwrap();
    assert!(slow.answer().starts_with("HTTP/1.1 200 "));
}
