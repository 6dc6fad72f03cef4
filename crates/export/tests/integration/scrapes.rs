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
    let looks = Arc::new(AtomicUsize::new(0));
    let (counted, clock) = (Arc::clone(&looks), RealClock::new());
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
    let looks = looks.load(Ordering::Relaxed);
    assert!((1..=20 / 2).contains(&looks), "{looks}");
}

#[test]
fn scrape_soon_after_a_snapshot_reuses_it() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let limits = Limits { reuse: Duration::from_secs(3600), ..Limits::default() };
    let served = Served::start(limits, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Metrics::without_answer()
    });
    for _ in 0..5 {
        served.scrape("");
    }
    assert_eq!(looks.load(Ordering::Relaxed), 1);
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
fn server_ends_with_its_looker() {
    let gone = Mutex::new(());
    let served = Served::start(Limits::default(), move |_| {
        drop(gone.lock());
        panic!("a defect in a look")
    });
    assert_eq!(served.scrape(""), "");
    assert_eq!(served.failure(), "the thread that looks at the machine has ended");
}
