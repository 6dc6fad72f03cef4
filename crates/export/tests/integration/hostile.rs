//! Clients that are slow, greedy, many, or do not speak HTTP.

use crate::served::Served;
use gpu_export::{Limits, Metrics};
use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";

fn limits() -> Limits {
    Limits {
        connections: 8,
        reading: Duration::from_secs(60),
        writing: Duration::from_millis(200),
        ..Limits::default()
    }
}

fn served(limits: Limits) -> Served {
    Served::start(limits, |_| Metrics::without_answer())
}

#[test]
fn silent_and_slow_clients_do_not_keep_others_out() {
    let served = served(limits());
    // Many times as many as there is room for, each with a part of a request.
    let slow: Vec<_> = (0..100).map(|_| served.connect(b"GET /metrics HTTP/1.1\r\nA: ")).collect();
    for _ in 0..20 {
        assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
    }
    // The newest of them are still there, and the others were dropped.
    let mut newest = slow.into_iter().next_back().unwrap();
    let _ = newest.0.write_all(b"b\r\n\r\n");
    newest.answer();
}

#[test]
fn client_that_sends_too_slowly_is_dropped() {
    let served = served(Limits { reading: Duration::from_millis(50), ..limits() });
    assert_eq!(served.connect(b"GET /metr").answer(), "");
    assert_eq!(served.connect(b"").answer(), "");
    assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
}

#[test]
fn endless_headers_are_refused() {
    let served = served(limits());
    let endless = [b"GET /metrics HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 7000]].concat();
    let mut client = served.connect(&endless);
    // It may have refused the rest already.
    let _ = client.0.write_all(&[b'a'; 5000]);
    let answer = client.answer();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = "a: b\r\n".repeat(1000);
    let answer = served.ask(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    for bytes in
        [&b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03"[..], b"\0\0\0\0", b"\r\n\r\n\r\n x"]
    {
        let answer = served.connect(bytes).answer();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
}

#[test]
fn client_that_leaves_costs_nothing() {
    let served = served(limits());
    for _ in 0..200 {
        let client = served.connect(SCRAPE);
        drop(client);
        let half = served.connect(SCRAPE);
        half.0.shutdown(Shutdown::Write).unwrap();
        assert!(half.answer().contains("\ngpuws_up 0.0\n"), "it can still read");
    }
    assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
}

#[test]
fn clients_that_read_nothing_do_not_keep_others_out() {
    let served = served(limits());
    for _ in 0..10 {
        // Fewer than there is room for: a scrape that is under way is not dropped for another.
        let silent: Vec<_> = (0..6).map(|_| served.connect(SCRAPE)).collect();
        assert!(served.scrape("").contains("\ngpuws_up 0.0\n"));
        drop(silent);
    }
}

#[test]
fn one_scrape_too_many_is_told_so_and_the_others_are_answered() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let limits = Limits { connections: 2, ..limits() };
    let served = Served::start(limits, move |_| {
        let _ = held.recv();
        Metrics::without_answer()
    });
    let first = [served.connect(SCRAPE), served.connect(SCRAPE)];
    // The first two may not have been read yet; then they are dropped for the next.
    let busy = (0..1000).map(|_| served.scrape("X-Prometheus-Scrape-Timeout-Seconds: 0.1\r\n"));
    let refused = busy.into_iter().find(|answer| answer.starts_with("HTTP/1.1 503 "));
    assert!(refused.is_some());
    drop(release);
    let answered = first.map(|client| client.answer().contains("\ngpuws_up 0.0\n"));
    assert!(answered.contains(&true), "{answered:?}");
}
